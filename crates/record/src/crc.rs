//! The two checksums of the log: CRC-32C for v2 batches, CRC-32 for v0 and v1 messages. Both use the processor's own
//! instructions where it has them (chosen at run time by the crates underneath).

/// CRC-32C (Castagnoli) of a v2 batch's bytes from the attributes to the end.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// CRC-32 (ISO-HDLC) of a v0 or v1 message's bytes from the magic to the end.
#[inline]
pub fn crc32(data: &[u8]) -> u32 {
    crc32fast::hash(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn every_length_agrees_with_the_bitwise_definition() {
        let data: Vec<u8> = (0..1100u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut reference = !0u32;
        for (length, byte) in data.iter().enumerate() {
            assert_eq!(crc32c(data.get(..length).unwrap()), !reference, "length {length}");
            reference ^= u32::from(*byte);
            for _ in 0..8 {
                reference = (reference >> 1) ^ (0x82f6_3b78 & (reference & 1).wrapping_neg());
            }
        }
    }
}
