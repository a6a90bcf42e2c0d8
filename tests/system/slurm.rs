//! Under Slurm, with its own daemons in the lab: a job's programs stay on the job's nodes, and end with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, ensure, place};

const SHORT: Duration = Duration::from_secs(30);
const FETCH: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("slurm::full::job", |_| {
        let cluster = Cluster::balancing(3, &["--cpu", "0.4,0.4,0.4"])?;
        cluster.explaining(|| job(&cluster))
    })]
}

/// Slurm's programs and configuration, for the nodes of one lab.
struct Slurm<'a> {
    cluster: &'a Cluster,
    root: PathBuf,
    directory: PathBuf,
}

impl<'a> Slurm<'a> {
    /// Starts the controller on n1, and nodes of Slurm's on n1 and n2. The daemons end with their nodes.
    fn start(cluster: &'a Cluster) -> Result<Self> {
        let root = place::toolchain().join("slurm");
        let script = place::toolchain().join("../scripts/fetch-slurm");
        process::succeed(Command::new(script).arg(&root), FETCH)?;
        let slurm = Self {
            cluster,
            root: root.canonicalize()?,
            directory: cluster.directory().join("slurm"),
        };
        fs::create_dir_all(&slurm.directory)?;
        slurm.configure()?;
        let key = slurm.directory.join("munge.key");
        fs::write(&key, [0x5a; 1024])?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400))?;
        for node in ["n1", "n2"] {
            slurm.run(
                node,
                "mkdir -p /run/m && munged --force --key-file=$DIR/munge.key --socket=/run/m/s \
                 --pid-file=/run/m/pid --log-file=/run/m/log --seed-file=/run/m/seed",
            )?;
            if node == "n1" {
                slurm.run(node, "mkdir -p /run/slurmctld && slurmctld-wlm -i")?;
            }
            let slurmd = format!(
                "mkdir -p /run/slurmd && slurmd-wlm -N {node} -d $ROOT/usr/sbin/slurmstepd-wlm"
            );
            slurm.run(node, &slurmd)?;
        }
        eventually(SHORT, "Slurm's nodes are idle", || {
            Ok(slurm
                .run("n1", "sinfo -h -o '%t %N'")?
                .contains("idle n[1-2]")
                .then_some(()))
        })?;
        Ok(slurm)
    }

    fn libraries(&self) -> Result<PathBuf> {
        let below = fs::read_dir(self.root.join("usr/lib"))?.flatten();
        let mut places = below.map(|entry| entry.path());
        places
            .find(|path| path.join("slurm-wlm").is_dir())
            .context("Slurm has no plugins")
    }

    fn configure(&self) -> Result<()> {
        let plugins = self.libraries()?.join("slurm-wlm");
        let text = format!(
            "ClusterName=lab\nSlurmctldHost=n1\nSlurmUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket=/run/m/s\nStateSaveLocation=/run/slurmctld\nSlurmdSpoolDir=/run/slurmd\n\
             SlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n\
             SlurmctldLogFile=/run/slurmctld.log\nSlurmdLogFile=/run/slurmd.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             PluginDir={}\nSlurmdParameters=config_overrides\nReturnToService=2\nKillWait=2\n\
             NodeName=n[1-2] CPUs=2 RealMemory=100 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n",
            plugins.display()
        );
        Ok(fs::write(self.directory.join("slurm.conf"), text)?)
    }

    /// Lines of shell on a node, where Slurm's programs are found.
    fn run(&self, node: &str, lines: &str) -> Result<String> {
        let (root, libraries) = (self.root.display(), self.libraries()?);
        let script = format!(
            "export ROOT={root} DIR={} LD_LIBRARY_PATH={lib}:{lib}/slurm-wlm SLURM_CONF={}/slurm.conf \
             PATH={root}/usr/sbin:{root}/usr/bin:$PATH; {lines}",
            self.directory.display(),
            self.directory.display(),
            lib = libraries.display(),
        );
        self.cluster.run(node, &["bash", "-c", &script])
    }
}

fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// Three programs of a job with two of three nodes.
fn job(cluster: &Cluster) -> Result<()> {
    let slurm = Slurm::start(cluster)?;
    let hog = "while :; do :; done # of the job";
    let whim = cluster.whim_path();
    let script = slurm.directory.join("job");
    let text = format!(
        "#!/bin/sh\nunset LD_LIBRARY_PATH\nfor n in 1 2 3; do {} run -- sh -c '{hog}' & done\nwait\n",
        whim.display()
    );
    write_script(&script, &text)?;
    let submit = format!(
        "sbatch -N2 -D {} {}",
        slurm.directory.display(),
        script.display()
    );
    slurm.run("n1", &submit)?;
    // n3 has nothing to do, and still gets none of them.
    let rows = eventually(Duration::from_secs(100), "the job has spread", || {
        let mut rows = cluster.rows("n1", false)?;
        rows.retain(|row| row.command.contains("of the job"));
        let settled = rows.len() == 3 && rows.iter().all(|row| row.state != "moving");
        let spread = rows.iter().any(|row| row.place == "n2");
        Ok((settled && spread).then_some(rows))
    })?;
    ensure!(rows.iter().all(|row| row.place != "n3"), "{rows:?}");
    let pid = rows[0].pid.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n3"])?;
    ensure!(
        refusal.contains("It belongs to Slurm job 1, which has n1, n2"),
        "{refusal}"
    );
    slurm.run("n1", "scancel 1")?;
    eventually(SHORT, "the job's programs and guests are gone", || {
        let own = cluster.rows("n1", false)?;
        let none = own.iter().all(|row| !row.command.contains("of the job"));
        Ok((none && cluster.rows("n2", true)?.is_empty()).then_some(()))
    })?;
    let log = cluster.log()?;
    let to_n3 = log.iter().filter_map(|row| row["text"].as_str());
    let to_n3: Vec<&str> = to_n3.filter(|text| text.contains("to n3, since")).collect();
    ensure!(to_n3.is_empty(), "{to_n3:?}");
    Ok(())
}
