//! RFC 6979, A.2.5 and A.2.6: the nonces and the signatures made with them.

use lockstep_kernels::nist::{nonce, p256, p384};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::common::{every_lane_and_fill, hex, nist_backends, secret, wide};

macro_rules! rfc6979 {
    ($curve:ident, $key:literal, $x:literal, $y:literal, [$(($hash:ident, $message:literal, $k:literal, $r:literal, $s:literal)),* $(,)?]) => {
        #[test]
        fn $curve() {
            const BYTES: usize = $curve::BYTES;
            let key = secret(&hex::<BYTES>($key));
            let public = $curve::PublicKey { x: hex($x), y: hex($y) };
            let cases = [$({
                let digest = $hash::digest($message).to_vec();
                let nonce = nonce::rfc6979::<$hash, BYTES>(&key, &digest);
                if !$k.is_empty() {
                    assert_eq!(nonce.as_bytes(), wide(&hex::<BYTES>($k)).as_bytes());
                }
                (digest, nonce, $curve::Signature { r: hex($r), s: hex($s) })
            }),*];
            for backend in nist_backends() {
                every_lane_and_fill(backend, &cases, |cases| {
                    let mut jobs: Vec<_> = cases
                        .iter()
                        .map(|(digest, nonce, _)| $curve::SignJob::new(&key, digest, nonce))
                        .collect();
                    $curve::ecdsa_sign(backend, &mut jobs);
                    for (job, (_, _, expected)) in jobs.iter().zip(cases) {
                        assert_eq!(job.result, Some(Ok(*expected)));
                    }
                    let mut jobs: Vec<_> = cases
                        .iter()
                        .map(|(digest, _, signature)| $curve::VerifyJob::new(&public, digest, signature))
                        .collect();
                    $curve::ecdsa_verify_vartime(backend, &mut jobs);
                    assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
                });
            }
        }
    };
}

rfc6979!(
    p256,
    "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
    [
        (
            Sha256,
            "sample",
            "a6e3c57dd01abe90086538398355dd4c3b17aa873382b0f24d6129493d8aad60",
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
        ),
        (
            Sha256,
            "test",
            "d16b6ae827f17175e040871a1c7ec3500192c4c92677336ec2537acaee0008e0",
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367",
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083"
        ),
        (
            Sha384,
            "sample",
            "",
            "0eafea039b20e9b42309fb1d89e213057cbf973dc0cfc8f129edddc800ef7719",
            "4861f0491e6998b9455193e34e7b0d284ddd7149a74b95b9261f13abde940954"
        ),
        (
            Sha512,
            "sample",
            "5fa81c63109badb88c1f367b47da606da28cad69aa22c4fe6ad7df73a7173aa5",
            "8496a60b5e9b47c825488827e0495b0e3fa109ec4568fd3f8d1097678eb97f00",
            "2362ab1adbe2b8adf9cb9edab740ea6049c028114f2460f96554f61fae3302fe"
        ),
    ]
);

rfc6979!(
    p384,
    "6b9d3dad2e1b8c1c05b19875b6659f4de23c3b667bf297ba9aa47740787137d896d5724e4c70a825f872c9ea60d2edf5",
    "ec3a4e415b4e19a4568618029f427fa5da9a8bc4ae92e02e06aae5286b300c64def8f0ea9055866064a254515480bc13",
    "8015d9b72d7d57244ea8ef9ac0c621896708a59367f9dfb9f54ca84b3f1c9db1288b231c3ae0d4fe7344fd2533264720",
    [
        (
            Sha256,
            "sample",
            "180ae9f9aec5438a44bc159a1fcb277c7be54fa20e7cf404b490650a8acc414e375572342863c899f9f2edf9747a9b60",
            "21b13d1e013c7fa1392d03c5f99af8b30c570c6f98d4ea8e354b63a21d3daa33bde1e888e63355d92fa2b3c36d8fb2cd",
            "f3aa443fb107745bf4bd77cb3891674632068a10ca67e3d45db2266fa7d1feebefdc63eccd1ac42ec0cb8668a4fa0ab0"
        ),
        (
            Sha384,
            "sample",
            "94ed910d1a099dad3254e9242ae85abde4ba15168eaf0ca87a555fd56d10fbca2907e3e83ba95368623b8c4686915cf9",
            "94edbb92a5ecb8aad4736e56c691916b3f88140666ce9fa73d64c4ea95ad133c81a648152e44acf96e36dd1e80fabe46",
            "99ef4aeb15f178cea1fe40db2603138f130e740a19624526203b6351d0a3a94fa329c145786e679e7b82c71a38628ac8"
        ),
        (
            Sha384,
            "test",
            "015ee46a5bf88773ed9123a5ab0807962d193719503c527b031b4c2d225092ada71f4a459bc0da98adb95837db8312ea",
            "8203b63d3c853e8d77227fb377bcf7b7b772e97892a80f36ab775d509d7a5feb0542a7f0812998da8f1dd3ca3cf023db",
            "ddd0760448d42d8a43af45af836fce4de8be06b485e9b61b827c2f13173923e06a739f040649a667bf3b828246baa5a5"
        ),
        (
            Sha512,
            "sample",
            "92fc3c7183a883e24216d1141f1a8976c5b0dd797dfa597e3d7b32198bd35331a4e966532593a52980d0e3aaa5e10ec3",
            "ed0959d5880ab2d869ae7f6c2915c6d60f96507f9cb3e047c0046861da4a799cfe30f35cc900056d7c99cd7882433709",
            "512c8cceee3890a84058ce1e22dbc2198f42323ce8aca9135329f03c068e5112dc7cc3ef3446defceb01a45c2667fdd5"
        ),
    ]
);
