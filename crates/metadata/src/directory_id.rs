//! Log directory ids (KIP-858): the reserved ones, and when a directory counts as online.

use std::cmp::Ordering;

use protocol::Uuid;

/// The replica comes from before directories were assigned.
pub const MIGRATING: Uuid = reserved_id(0);
/// The broker chooses the directory.
pub const UNASSIGNED: Uuid = reserved_id(1);
/// The directory is gone, its name unknown.
pub const LOST: Uuid = reserved_id(2);

const fn reserved_id(n: u8) -> Uuid {
    Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

fn halves(id: &Uuid) -> (i64, i64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = id.0;
    (i64::from_be_bytes([a, b, c, d, e, f, g, h]), i64::from_be_bytes([i, j, k, l, m, n, o, p]))
}

/// The order of ids in records: two signed numbers, as the reference compares them.
pub fn compare(a: &Uuid, b: &Uuid) -> Ordering {
    halves(a).cmp(&halves(b))
}

/// Whether no real directory may have this id.
pub fn is_reserved(id: &Uuid) -> bool {
    let (high, low) = halves(id);
    high == 0 && low < 100
}

/// Whether a replica in `dir` can be served by a broker whose online directories are these.
pub fn is_online(dir: &Uuid, online: &[Uuid]) -> bool {
    if *dir == UNASSIGNED || *dir == MIGRATING {
        return true;
    }
    if *dir == LOST {
        return false;
    }
    online.is_empty() || online.contains(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_two_signed_halves() {
        let high = Uuid([0xff; 16]);
        let low = Uuid([0x01; 16]);
        assert_eq!(compare(&high, &low), Ordering::Less);
        assert_eq!(compare(&low, &low), Ordering::Equal);
    }

    #[test]
    fn reserved_ids_are_never_real_directories() {
        assert!(is_reserved(&MIGRATING) && is_reserved(&UNASSIGNED) && is_reserved(&LOST));
        assert!(is_reserved(&reserved_id(99)) && !is_reserved(&reserved_id(100)));
        assert!(is_online(&UNASSIGNED, &[Uuid([7; 16])]) && is_online(&MIGRATING, &[]));
        assert!(!is_online(&LOST, &[]));
        assert!(is_online(&Uuid([7; 16]), &[]) && is_online(&Uuid([7; 16]), &[Uuid([7; 16])]));
        assert!(!is_online(&Uuid([8; 16]), &[Uuid([7; 16])]));
    }
}
