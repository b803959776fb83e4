//! Project chores: what CI runs, code generation, layering, benchmarks, documentation.

#![allow(clippy::print_stdout, reason = "a command-line tool reports on stdout")]

mod bench;
mod ci;
mod debian;
mod digest;
mod docs;
mod fuzz;
mod gen_cni;
mod generate;
mod kernel;
mod kubernetes;
mod shim;
mod tidy;
mod workspace;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything CI checks, stage by stage, with the minutes each stage took.
    Ci,
    /// Rewrite generated files, or with --check fail when one is out of date.
    Gen {
        /// Compare instead of writing.
        #[arg(long)]
        check: bool,
    },
    /// Build antrea-cni as it is shipped, small and static, into a folder.
    Cni {
        /// Where to put it.
        bin_dir: PathBuf,
    },
    /// Check the layering of crates and the rules that no lint expresses.
    Tidy,
    /// Measure the figures of docs/performance.md.
    Bench {
        /// Only benchmarks whose name contains one of these words.
        only: Vec<String>,
    },
    /// Try every decoder with damaged input, for longer than the tests do.
    Fuzz {
        /// Inputs for each decoder.
        #[arg(long, default_value_t = 10_000_000)]
        executions: u64,
        /// Where the generator starts; the time when left out, so that every run tries others.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Build the programs as images carry them, small and static, into a folder: takes minutes.
    Dist {
        /// The folder.
        bin_dir: PathBuf,
    },
    /// Boot Debian's kernel in QEMU and run the lab's scenarios on its datapath.
    TestKernel {
        /// Memory of the virtual machine, in MiB.
        #[arg(long, default_value_t = 3072)]
        memory: u32,
        /// Minutes after which it is switched off.
        #[arg(long, default_value_t = 45)]
        minutes: u64,
        /// Emulate the processor even where there is /dev/kvm: some machines offer it, and what is
        /// started on it stands still.
        #[arg(long)]
        emulate: bool,
        /// What to run in it instead.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Build Kubernetes' own API server and controller manager, and run the lab's scenarios with
    /// them.
    TestKubernetes {
        /// Version of Kubernetes.
        #[arg(long, default_value = "1.34.2")]
        version: String,
        /// Version of etcd.
        #[arg(long, default_value = "3.5.21")]
        etcd: String,
        /// Folder with etcd, kube-apiserver, kube-controller-manager and kubectl; they are built
        /// when it is left out.
        #[arg(long)]
        bin_dir: Option<PathBuf>,
        /// Folder with our own programs [default: target/release].
        #[arg(long)]
        lab_dir: Option<PathBuf>,
        /// Addresses of Pods and Services.
        #[arg(long, value_enum, default_value = "ipv4")]
        ip_family: kubernetes::Family,
        /// Scenarios of the lab; those in which the API server takes part when none is named.
        scenarios: Vec<String>,
    },
    /// Run the fenced commands of README and docs as written.
    Docs,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Ci => ci::run(),
        Chore::Gen { check } => {
            generate::run(if check { generate::Mode::Check } else { generate::Mode::Write })
        }
        Chore::Cni { bin_dir } => shim::build(&bin_dir),
        Chore::Dist { bin_dir } => shim::build_images(&bin_dir),
        Chore::Tidy => tidy::run(),
        Chore::Bench { only } => bench::run(&only),
        Chore::Fuzz { executions, seed } => fuzz::run(executions, seed),
        Chore::TestKernel { memory, minutes, emulate, command } => {
            kernel::run(&kernel::Options { memory, minutes, emulate, command })
        }
        Chore::TestKubernetes { version, etcd, bin_dir, lab_dir, ip_family, scenarios } => {
            let family = ip_family;
            let options =
                kubernetes::Options { version, etcd, bin_dir, lab_dir, family, scenarios };
            kubernetes::run(&options)
        }
        Chore::Docs => {
            docs::run(&workspace::target_dir().join("release"), &|command| workspace::run(command))
        }
    }
}
