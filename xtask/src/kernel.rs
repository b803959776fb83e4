//! Tests on the kernel's datapath, where the running kernel has none: boots Debian's kernel in QEMU.
//!
//! The virtual machine sees the host's root read-only under memory, so that the same programs run at
//! the same paths and nothing they write reaches the host. The kernel is unpacked from its package
//! below the target directory; the host gets none installed. Not here: the archive that the kernel
//! starts from (`kernel::initramfs`).

mod initramfs;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{debian, workspace};
use initramfs::Archive;

/// The package that depends on the current kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// What the machine needs before it sees the host's files.
const EARLY_MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];
/// What the kernel does not load by itself when it is asked for, and what the tests of the datapath
/// must not find missing half way.
const MODULES: [&str; 12] = [
    "openvswitch",
    "vport-geneve",
    "vport-vxlan",
    "vport-gre",
    "nf_tables",
    "nft_chain_nat",
    "nf_conntrack_netlink",
    "veth",
    "bridge",
    "tun",
    "dummy",
    "sctp",
];
/// How much slower than the machine itself the emulated one is: waits in the lab grow by it.
const PATIENCE_EMULATED: u32 = 10;
/// A kernel that runs says so long before, where nothing is emulated.
const SPEAKS_WITHIN: Duration = Duration::from_secs(90);
const BUSYBOX: &str = "/bin/busybox";
const QEMU: &str = "qemu-system-x86_64";

/// What a run is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Memory of the machine in MiB.
    pub memory: u32,
    /// After this many minutes the machine is switched off.
    pub minutes: u64,
    /// Whether to do without KVM.
    pub emulate: bool,
    /// What to run instead of the lab's scenarios.
    pub command: Vec<String>,
}

/// Runs the scenarios, or the command of `options`, on Debian's kernel.
pub(crate) fn run(options: &Options) -> Result<()> {
    for (program, package) in
        [(QEMU, "qemu-system-x86"), (BUSYBOX, "busybox-static"), ("depmod", "kmod")]
    {
        if !is_there(program) {
            bail!(
                "{program} is missing: `make test-kernel` installs it, or apt-get install {package}"
            );
        }
    }
    let command = match options.command.as_slice() {
        [] => scenarios()?,
        words => words.to_vec(),
    };
    let dir = absolute(&workspace::target_dir())?.join("kernel");
    let kernel = Kernel::get(&dir)?;
    let accelerator = if options.emulate { Accelerator::Tcg } else { Accelerator::here() };
    println!("kernel {} under {}", kernel.version, accelerator.words());
    let mark = format!("=== ended {:x}:", std::process::id());
    let initrd = dir.join("initramfs");
    let archive = kernel.initramfs(&command, &mark, accelerator)?;
    fs::write(&initrd, archive).with_context(|| format!("write {}", initrd.display()))?;

    let console = dir.join("console.log");
    let machine = Machine::start(&kernel, &initrd, &console, options.memory, accelerator)?;
    let began = Instant::now();
    let patience = Patience {
        first_word: SPEAKS_WITHIN * accelerator.patience(),
        all: Duration::from_secs(options.minutes * 60),
    };
    let status = machine.follow(&mark, patience);
    println!("the virtual machine ran for {} s", began.elapsed().as_secs());
    match status.with_context(|| format!("see {}", console.display()))? {
        0 => Ok(()),
        status => bail!("{} ended with {status}", command.join(" ")),
    }
}

/// The lab's scenarios that `make test-kernel` stands for.
fn scenarios() -> Result<Vec<String>> {
    let lab = absolute(&workspace::target_dir())?.join("release/antrea-lab");
    if !lab.exists() {
        bail!("{} is not built: run `make build`", lab.display());
    }
    let lab = lab.display().to_string();
    let words = [lab.as_str(), "check", "matrix", "agent-restart", "ovs-restart"];
    Ok(words.into_iter().chain(["--datapath", "system"]).map(str::to_owned).collect())
}

/// What runs the machine's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU, one by one.
    Tcg,
}

impl Accelerator {
    /// The best that this machine offers.
    fn here() -> Self {
        let kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if kvm.is_ok() { Self::Kvm } else { Self::Tcg }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "emulation (no KVM): many times slower than this machine",
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"],
        }
    }

    fn patience(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => PATIENCE_EMULATED,
        }
    }
}

/// A kernel as it was unpacked from its package.
struct Kernel {
    root: PathBuf,
    version: String,
}

impl Kernel {
    /// The kernel that was unpacked before, else Debian's current one.
    fn get(dir: &Path) -> Result<Self> {
        if let Some(kernel) = Self::unpacked(&dir.join("root")) {
            return Ok(kernel);
        }
        let package = current_package()?;
        let part = dir.join("part");
        let _ = fs::remove_dir_all(dir.join("root"));
        let unpacked = debian::unpack(&package, &part)?;
        let kernel = Self::unpacked(&unpacked)
            .with_context(|| format!("{package} holds no kernel with modules"))?;
        workspace::run(Command::new("depmod").arg("-b").arg(&unpacked).arg(&kernel.version))?;
        // Whole, or not there at all: an interrupted run begins anew.
        fs::rename(&unpacked, dir.join("root")).context("keep the unpacked kernel")?;
        let _ = fs::remove_dir_all(&part);
        Ok(Self { root: dir.join("root"), ..kernel })
    }

    fn unpacked(root: &Path) -> Option<Self> {
        let entry = fs::read_dir(root.join("lib/modules")).ok()?.flatten().next()?;
        let version = entry.file_name().to_string_lossy().into_owned();
        let kernel = Self { root: root.to_owned(), version };
        kernel.image().exists().then_some(kernel)
    }

    fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    fn modules(&self) -> PathBuf {
        self.root.join("lib/modules")
    }

    /// What the kernel starts from: busybox, the modules that reach the host's files, our scripts.
    fn initramfs(
        &self,
        command: &[String],
        mark: &str,
        accelerator: Accelerator,
    ) -> Result<Vec<u8>> {
        let tree = self.modules().join(&self.version);
        let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
        let dependencies = String::from_utf8(read(&tree.join("modules.dep"))?)
            .context("read the modules' dependencies")?;
        let mut archive = Archive::default();
        for dir in ["bin", "dev", "proc", "host", "memory", "root", "modules"] {
            archive.directory(dir);
        }
        archive.program("bin/busybox", &read(Path::new(BUSYBOX))?);
        archive.program("init", include_bytes!("kernel/init.sh"));
        archive.file("guest.sh", include_bytes!("kernel/guest.sh"));
        let mut order = String::new();
        for (n, path) in load_order(&dependencies, &EARLY_MODULES)?.iter().enumerate() {
            let name = format!("{n}.ko");
            archive.file(&format!("modules/{name}"), &read(&tree.join(path))?);
            order.push_str(&name);
            order.push('\n');
        }
        archive.file("modules/order", order.as_bytes());
        archive.file("command", quoted(command).as_bytes());
        let environment = [
            ("VM_MARK", mark.to_owned()),
            ("VM_MODULES", self.modules().display().to_string()),
            ("VM_LOAD", MODULES.join(" ")),
            ("VM_DIR", workspace::root().display().to_string()),
            ("ANTREA_LAB_PATIENCE", accelerator.patience().to_string()),
        ];
        let lines: String =
            environment.map(|(name, value)| format!("export {name}={}\n", quote(&value))).concat();
        archive.file("environment", lines.as_bytes());
        Ok(archive.finish())
    }
}

/// The package that holds Debian's current kernel.
fn current_package() -> Result<String> {
    if let Some(package) = depended_on()? {
        return Ok(package);
    }
    workspace::run(Command::new("apt-get").args(["update", "-qq"]))?;
    depended_on()?.with_context(|| format!("no package {META_PACKAGE} in the lists of apt"))
}

fn depended_on() -> Result<Option<String>> {
    let output = Command::new("apt-cache")
        .args(["depends", "--important", META_PACKAGE])
        .output()
        .context("run apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(package.map(str::to_owned))
}

/// Modules with all they depend on, in an order in which each finds what it needs. The argument is
/// `modules.dep`: a line for each module, which names what it needs, the nearest first.
fn load_order(dependencies: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let file = format!("/{name}.ko");
        let (module, needs) = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(module, _)| {
                let end = module.find(".ko").map_or(module.len(), |at| at + ".ko".len());
                module[..end].ends_with(&file)
            })
            .with_context(|| format!("the kernel has no module {name}"))?;
        for path in needs.split_whitespace().rev().chain([module]) {
            if !order.iter().any(|earlier| earlier == path) {
                order.push(path.to_owned());
            }
        }
    }
    Ok(order)
}

/// How long a machine may take.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Until it says its first word.
    first_word: Duration,
    /// Until its command has ended.
    all: Duration,
}

/// A machine that runs; switched off when dropped.
struct Machine {
    qemu: Child,
    output: ChildStdout,
}

impl Machine {
    fn start(
        kernel: &Kernel,
        initrd: &Path,
        console: &Path,
        memory: u32,
        accelerator: Accelerator,
    ) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(1, 4));
        // QEMU ends with us, however we end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU, "-M", "q35"]);
        command.args(accelerator.arguments());
        command.args(["-m", &memory.to_string(), "-smp", &cpus.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(initrd);
        command.args([
            "-append",
            "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable",
        ]);
        command.args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"]);
        command.args([
            "-virtfs",
            "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu = command.spawn().context("start QEMU")?;
        let output = qemu.stdout.take().context("the output of QEMU")?;
        Ok(Self { qemu, output })
    }

    /// Prints what the command says, and returns the status it ended with.
    fn follow(mut self, mark: &str, patience: Patience) -> Result<u32> {
        let began = Instant::now();
        let mut within = patience.first_word;
        let (line_tx, line_rx) = mpsc::channel();
        let output = BufReader::new(self.output);
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(std::io::Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if line_tx.send(line).is_err() {
                    break;
                }
            }
        });
        let ended = loop {
            let left = within.saturating_sub(began.elapsed());
            let line = line_rx.recv_timeout(left);
            if line.is_ok() {
                within = patience.all;
            }
            match line {
                Ok(line) => match line.strip_prefix(mark) {
                    Some(status) => break status.trim().parse().context("read how it ended"),
                    None => println!("{line}"),
                },
                Err(RecvTimeoutError::Timeout) if within == patience.first_word => {
                    break Err(anyhow::anyhow!(
                        "no word of its kernel after {} s: where KVM is offered and does not \
                         work, --emulate does without",
                        within.as_secs()
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {
                    break Err(anyhow::anyhow!("not done after {} min", within.as_secs() / 60));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(anyhow::anyhow!("the virtual machine went away"));
                }
            }
        };
        // It has said all: nothing is lost when it does not get to switch itself off.
        let _ = self.qemu.kill();
        self.qemu.wait().context("wait for QEMU")?;
        ended
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    // Joining an absolute path gives that path.
    dirs.map(|dir| dir.join(program)).any(|path| path.is_file())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("resolve {}", path.display()))
}

/// A command line for a shell, each word as it is.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let dependencies = "a/virtio.ko:\n\
                            a/ring.ko: a/virtio.ko\n\
                            a/virtio_pci.ko.xz: a/ring.ko a/virtio.ko\n\
                            b/not_9p.ko: c/far.ko\n\
                            b/9p.ko: a/ring.ko b/net.ko a/virtio.ko\n";
        assert_eq!(
            load_order(dependencies, &["virtio_pci", "9p"]).unwrap(),
            ["a/virtio.ko", "a/ring.ko", "a/virtio_pci.ko.xz", "b/net.ko", "b/9p.ko"]
        );
        let error = load_order(dependencies, &["overlay"]).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no module overlay");
    }

    #[test]
    fn a_shell_takes_words_as_they_are() {
        let words = ["echo", "it's  $HOME; \"x\"", ""].map(str::to_owned);
        let output = Command::new("sh").args(["-c", &quoted(&words)]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's  $HOME; \"x\" \n");
    }
}
