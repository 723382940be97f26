//! Compressed points, against the crates p256 and p384.

use lockstep_kernels::nist::{Error, PublicKey, p256, p384};
use num_bigint::BigUint;

use super::common::{Random, every_fill, every_lane_and_fill, from_big, nist_backends};

macro_rules! compressed {
    ($name:ident, $curve:ident, $p:literal) => {
        mod $name {
            use super::*;

            const BYTES: usize = $curve::BYTES;

            /// Returns encodings: of points, of other numbers, and of numbers that are not below p.
            fn encodings() -> Vec<Vec<u8>> {
                let mut random = Random(71);
                let p = BigUint::parse_bytes($p.as_bytes(), 16).unwrap();
                let mut numbers: Vec<[u8; BYTES]> = (1..20_u8)
                    .flat_map(|x| {
                        [
                            from_big(&x.into()),
                            from_big(&(&p - x)),
                            from_big(&(&p + x)),
                        ]
                    })
                    .collect();
                numbers.extend([[0; BYTES], from_big(&p), [0xff; BYTES]]);
                numbers.extend((0..60).map(|_| random.bytes::<BYTES>()));
                let both = |x: &[u8; BYTES]| [2, 3].map(|tag| [&[tag], &x[..]].concat());
                numbers.iter().flat_map(both).collect()
            }

            #[test]
            fn points_are_those_of_another_library() {
                let encodings = encodings();
                let expected = |encoding: &Vec<u8>| {
                    let key = ::$curve::ecdsa::VerifyingKey::from_sec1_bytes(encoding);
                    let point = key.map_err(|_| Error::Point)?.to_encoded_point(false);
                    PublicKey::<BYTES>::from_sec1(point.as_bytes())
                };
                let cases: Vec<_> = encodings.iter().map(|own| (own, expected(own))).collect();
                let good = cases.iter().filter(|(_, point)| point.is_ok()).count();
                assert!((80..160).contains(&good), "{good} of {}", cases.len());
                for backend in nist_backends() {
                    let check = |cases: &[&(&Vec<u8>, Result<PublicKey<BYTES>, Error>)]| {
                        let mut jobs: Vec<_> = cases
                            .iter()
                            .map(|(own, _)| $curve::DecompressJob::from_sec1(own).unwrap())
                            .collect();
                        $curve::decompress(backend, &mut jobs);
                        for (job, (_, expected)) in jobs.iter().zip(cases) {
                            assert_eq!(job.result, Some(*expected), "{backend:?} {job:02x?}");
                        }
                    };
                    every_lane_and_fill(backend, &cases, check);
                    every_fill(&cases, check);
                }
            }

            #[test]
            fn other_bytes_are_no_compressed_points() {
                for tag in 0..=255 {
                    let mut bytes = [7; 2 + BYTES];
                    bytes[0] = tag;
                    let is_one = |bytes| $curve::DecompressJob::from_sec1(bytes).is_some();
                    assert_eq!(is_one(&bytes[..=BYTES]), tag == 2 || tag == 3);
                    assert!(!is_one(&bytes) && !is_one(&bytes[..BYTES]) && !is_one(&[]));
                }
            }
        }
    };
}

compressed!(
    on_p256,
    p256,
    "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"
);
compressed!(
    on_p384,
    p384,
    "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff"
);
