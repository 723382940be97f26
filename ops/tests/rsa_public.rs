//! RSA public operations on arrays of any length, on every backend.

use lockstep_ops::{
    Backend, Failed, JobError, Lanes, Memory, RsaPublicJob, RsaPublicKey, Unsupported,
};
use lockstep_testkit::{Random, RsaParts};
use num_bigint::BigUint;

#[test]
fn arrays_of_any_length_with_mixed_keys() {
    let parts = [1024, 2048, 3072, 4096].map(|bits| RsaParts::ordinary(bits).parts);
    let keys = parts
        .each_ref()
        .map(|[n, e, ..]| RsaPublicKey::new(n, e).unwrap());
    let mut random = Random(31);
    for backend in Backend::available() {
        let lanes = Lanes::new(backend, 1, 0);
        let mut memory = Memory::default();
        for count in [0, 1, 5, 100] {
            let count = if backend == Backend::PORTABLE {
                count.min(5)
            } else {
                count
            };
            let which = |i: usize| (i * i) % 4;
            let signatures: Vec<Vec<u8>> = (0..count)
                .map(|i| {
                    let mut signature = random.vec(keys[which(i)].modulus_bytes());
                    signature[0] = if i % 7 == 3 { 0xff } else { 0x7f };
                    signature.truncate(signature.len() - usize::from(i % 11 == 4));
                    signature
                })
                .collect();
            let jobs = signatures.iter().enumerate();
            let mut jobs: Vec<_> = jobs
                .map(|(i, signature)| RsaPublicJob::new(&keys[which(i)], signature))
                .collect();
            lanes.rsa_public(&mut memory, &mut jobs);
            for (i, job) in jobs.into_iter().enumerate() {
                let [n, e, ..] = parts[which(i)].each_ref();
                let [n, e] = [n, e].map(|part| BigUint::from_bytes_be(part));
                let number = BigUint::from_bytes_be(job.signature);
                let result = job.result.expect("set");
                if i % 11 == 4 {
                    assert_eq!(result, Err(Failed::Input(JobError::InputLength)));
                } else if number >= n {
                    assert_eq!(result, Err(Failed::Input(JobError::InputTooLarge)));
                } else {
                    let result = result.expect("a number");
                    assert_eq!(result.len(), job.key.modulus_bytes());
                    assert_eq!(BigUint::from_bytes_be(&result), number.modpow(&e, &n));
                }
            }
        }
    }
}

#[test]
fn a_key_that_has_no_kernel_says_why() {
    let [n, e, ..] = RsaParts::ordinary(2048).parts;
    let refused = |n: &[u8], e: &[u8]| RsaPublicKey::new(n, e).err();
    assert_eq!(refused(&n, &e), None);
    assert_eq!(refused(&[&[0; 3], &n[..]].concat(), &[0, 1, 0, 1]), None);
    for n in [&[][..], &[0; 256], &n[1..], &[&[1], &n[..]].concat()] {
        assert_eq!(refused(n, &e), Some(Unsupported::Size), "{n:?}");
    }
    let message = Unsupported::Size.to_string();
    assert!(
        message.contains("1024, 2048, 3072 or 4096 bits"),
        "{message}"
    );
    let mut even = n.clone();
    even[255] &= 0xfe;
    assert_eq!(refused(&even, &e), Some(Unsupported::Even));
    for e in [&[][..], &[0], &[1], &[4], &n, &[&[1], &n[..]].concat()] {
        assert_eq!(refused(&n, e), Some(Unsupported::Exponent), "{e:?}");
    }
    let [n, ..] = RsaParts::ordinary(4096).parts;
    assert_eq!(refused(&n, &[0xff; 8]), None);
    assert_eq!(refused(&n, &[0xff; 9]), Some(Unsupported::Exponent));
}
