//! Builds the archive that a kernel unpacks as its first root: cpio in the "new ASCII" form.
//!
//! Each entry is a header of 110 characters, the name with a closing zero, and the content; name and
//! content are padded to four bytes. The header is `070701` and thirteen numbers of eight hexadecimal
//! digits: inode, mode, owner, group, links, time, size, device and special device (major and minor
//! each), length of the name, and a checksum that is zero.

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LAST: &str = "TRAILER!!!";

/// An archive that grows.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
}

impl Archive {
    /// Adds a directory; its parents must be in already.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Adds a file that is read.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE, content);
    }

    /// Adds a file that is run.
    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(LAST, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let n_links = if mode == DIRECTORY { 2 } else { 1 };
        let size = u32::try_from(content.len()).expect("busybox and modules are far below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let header = [self.inodes, mode, 0, 0, n_links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in header {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let mut archive = Archive::default();
        archive.directory("d");
        archive.program("d/init", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        let zeros = |n: usize| "0".repeat(8 * n);
        let entry = |ino: u8, mode: &str, links: u8, size: u8, name: &str, rest: &str| {
            format!(
                "070701{ino:08x}{mode:0>8}{}{links:08x}{}{size:08x}{}{:08x}{}{name}\0{rest}",
                zeros(2),
                zeros(1),
                zeros(4),
                name.len() + 1,
                zeros(1),
            )
        };
        let want = entry(1, "41ed", 2, 0, "d", "")
            + &entry(2, "81ed", 1, 5, "d/init", "\0\0\0hello\0\0\0")
            + &entry(3, "0", 1, 0, "TRAILER!!!", "\0\0\0");
        assert_eq!(text, want);
    }
}
