//! Header of a store file: its format, and the number of its last acknowledged write.
//!
//! The first page of the file is the header; the B-tree follows. The header has two slots that are written in turn. A
//! torn write therefore leaves the previous slot intact.
//!
//! Writes are numbered. The B-tree has the number of its last write, and the header has the number of the last
//! acknowledged write. A B-tree with a smaller number has lost a write: for example, 41 in the B-tree and 42 in the
//! header. Copies of one store on several machines can also be compared by this number.

use std::fmt;
use std::io;

use redb::StorageBackend;
use sha2::{Digest as _, Sha256};

/// Version of the format: of the header, of the tables and of their records.
pub(super) const FORMAT: u32 = 2;
/// Format of the files that had no header.
const HEADERLESS_FORMAT: u32 = 1;
/// Bytes in front of the B-tree.
pub(super) const HEADER_BYTES: u64 = 4_096;

const MAGIC: [u8; 8] = *b"PUMICE\r\n";
/// First bytes of a bare B-tree file.
const HEADERLESS_MAGIC: [u8; 4] = *b"redb";
/// Distance of the two slots: a sector, which a disk writes whole or not at all.
const SLOT_DISTANCE: u64 = 512;
const SLOT_BYTES: usize = 48;

/// Identity of a store: chosen at random when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreId(pub(super) u64);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Header of a store file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreHeader {
    /// Identity of the store.
    pub(super) id: StoreId,
    /// Number of times that a header was written.
    generation: u64,
    /// Number of the last write that was acknowledged.
    pub(super) acknowledged: u64,
    /// True if the last server that had the store open closed it.
    pub(super) closed: bool,
}

/// Error of a header that was read.
#[derive(Debug)]
pub(super) enum HeaderError {
    /// The disk failed.
    Disk(io::Error),
    /// The file has another format.
    Format(u32),
    /// The file has no valid header.
    Damaged(&'static str),
}

impl StoreHeader {
    pub(super) fn new(id: StoreId) -> Self {
        Self {
            id,
            generation: 0,
            acknowledged: 0,
            closed: true,
        }
    }

    /// Writes the header to the slot that does not have the previous header. Does not flush.
    pub(super) fn write(&mut self, bytes: &dyn StorageBackend) -> Result<(), io::Error> {
        self.generation += 1;
        bytes.write(slot_offset(self.generation), &self.encode())
    }

    /// Newest valid header of a file.
    pub(super) fn read(bytes: &dyn StorageBackend) -> Result<Self, HeaderError> {
        let length = bytes.len().map_err(HeaderError::Disk)?;
        if length == 0 {
            return Err(HeaderError::Damaged("the file is empty"));
        }
        if length <= HEADER_BYTES {
            return Err(HeaderError::Damaged("the file was cut short"));
        }
        let (even, odd) = (read_slot(bytes, 0)?, read_slot(bytes, 1)?);
        let valid = [&even, &odd].into_iter().filter_map(Self::decode);
        match valid.max_by_key(|header| header.generation) {
            Some(header) => Ok(header),
            None => Err(invalid_header(&even, &odd)),
        }
    }

    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        let fields = [
            MAGIC,
            (u64::from(FORMAT) | u64::from(self.closed) << 32).to_le_bytes(),
            self.id.0.to_le_bytes(),
            self.generation.to_le_bytes(),
            self.acknowledged.to_le_bytes(),
        ];
        let (places, _) = slot.as_chunks_mut();
        for (place, field) in places.iter_mut().zip(fields) {
            *place = field;
        }
        let checksum = slot_checksum(&slot);
        if let Some(last) = slot.last_chunk_mut() {
            *last = checksum;
        }
        slot
    }

    /// Header of a slot, if the slot holds a valid one.
    fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Self> {
        let (fields, _) = slot.as_chunks();
        let [magic, format_and_flags, id, generation, acknowledged, checksum] =
            *<&[[u8; 8]; 6]>::try_from(fields).ok()?;
        let format_and_flags = u64::from_le_bytes(format_and_flags);
        let header = Self {
            id: StoreId(u64::from_le_bytes(id)),
            generation: u64::from_le_bytes(generation),
            acknowledged: u64::from_le_bytes(acknowledged),
            closed: format_and_flags >> 32 == 1,
        };
        let is_valid = magic == MAGIC && checksum == slot_checksum(slot) && slot_format(slot) == Some(FORMAT);
        is_valid.then_some(header)
    }
}

fn slot_offset(generation: u64) -> u64 {
    generation % 2 * SLOT_DISTANCE
}

fn read_slot(bytes: &dyn StorageBackend, generation: u64) -> Result<[u8; SLOT_BYTES], HeaderError> {
    let mut slot = [0; SLOT_BYTES];
    let read = bytes.read(slot_offset(generation), &mut slot);
    read.map_err(HeaderError::Disk)?;
    Ok(slot)
}

/// Version of the format that a slot names, valid or not.
fn slot_format(slot: &[u8; SLOT_BYTES]) -> Option<u32> {
    let format = slot.strip_prefix(&MAGIC)?.first_chunk()?;
    Some(u32::from_le_bytes(*format))
}

/// Error of a file without a valid header.
fn invalid_header(even: &[u8; SLOT_BYTES], odd: &[u8; SLOT_BYTES]) -> HeaderError {
    if even.starts_with(&HEADERLESS_MAGIC) {
        return HeaderError::Format(HEADERLESS_FORMAT);
    }
    // Both slots have the same format: another one in one slot only is damage.
    match (slot_format(even), slot_format(odd)) {
        (Some(even), Some(odd)) if even == odd && even != FORMAT => HeaderError::Format(even),
        (None, None) => HeaderError::Damaged("the file does not begin with the header of a store"),
        _ => HeaderError::Damaged("the checksum of the header is wrong"),
    }
}

fn slot_checksum(slot: &[u8; SLOT_BYTES]) -> [u8; 8] {
    let covered = slot.split_last_chunk::<8>().map_or(&[][..], |(covered, _)| covered);
    first_bytes(Sha256::digest(covered).as_slice())
}

/// First eight bytes of a hash.
pub(super) fn first_bytes(hash: &[u8]) -> [u8; 8] {
    hash.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    fn written(count: u64) -> (InMemoryBackend, StoreHeader) {
        let bytes = InMemoryBackend::new();
        bytes.set_len(HEADER_BYTES + 1).unwrap();
        let mut header = StoreHeader::new(StoreId(7));
        for number in 0..count {
            header.acknowledged = number;
            header.closed = number % 3 == 0;
            header.write(&bytes).unwrap();
        }
        (bytes, header)
    }

    #[test]
    fn the_newest_header_is_read() {
        for count in 1..7 {
            let (bytes, header) = written(count);
            assert_eq!(StoreHeader::read(&bytes).unwrap(), header);
        }
    }

    #[test]
    fn a_torn_header_leaves_the_one_before() {
        let (bytes, header) = written(5);
        let slot = slot_offset(header.generation);
        for byte in 0..SLOT_BYTES as u64 {
            let mut old = [0];
            bytes.read(slot + byte, &mut old).unwrap();
            bytes.write(slot + byte, &[old[0] ^ 4]).unwrap();
            assert_eq!(StoreHeader::read(&bytes).unwrap().acknowledged, 3, "byte {byte}");
            bytes.write(slot + byte, &old).unwrap();
        }
    }

    #[test]
    fn another_format_is_distinguished_from_damage() {
        let (bytes, _) = written(4);
        for slot in [0, SLOT_DISTANCE] {
            bytes.write(slot + MAGIC.len() as u64, &3_u32.to_le_bytes()).unwrap();
        }
        assert!(matches!(StoreHeader::read(&bytes), Err(HeaderError::Format(3))));
        bytes.write(0, &[0; 8]).unwrap();
        assert!(matches!(StoreHeader::read(&bytes), Err(HeaderError::Damaged(_))));
        bytes.write(0, b"redb").unwrap();
        assert!(matches!(StoreHeader::read(&bytes), Err(HeaderError::Format(1))));
    }
}
