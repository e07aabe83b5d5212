//! A real etcd of one or three members, and a proxy whose connections can be cut.

#![expect(clippy::disallowed_methods, reason = "processes take time, and the clock bounds it")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pumice_etcd::{Certificate, ClientTlsConfig, EtcdOptions};

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

/// Members of one etcd, which end with it.
pub(crate) struct EtcdCluster {
    folder: PathBuf,
    members: Vec<Member>,
    scheme: &'static str,
    authority: Option<String>,
    has_disks: bool,
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            end(member);
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn end(member: &mut Member) {
    if let Some(mut process) = member.process.take() {
        drop(process.kill());
        drop(process.wait());
    }
}

impl EtcdCluster {
    pub(crate) fn start(members: usize) -> Self {
        Self::start_as(members, "http", None, false)
    }

    /// Members that flush what they write, to disks that can be slow and full.
    pub(crate) fn start_with_disks(members: usize) -> Self {
        Self::start_as(members, "http", None, true)
    }

    /// One member that speaks TLS with this certificate for `localhost`, which is its own authority, and its key.
    pub(crate) fn start_with_tls(certificate: String, key: String) -> Self {
        Self::start_as(1, "https", Some((certificate, key)), false)
    }

    fn start_as(count: usize, scheme: &'static str, pair: Option<(String, String)>, has_disks: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let members = (0..count).map(|_| {
            let [client, peer] = free_ports();
            Member {
                client,
                peer,
                process: None,
            }
        });
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pumice-etcd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut own = Self {
            folder,
            members: members.collect(),
            scheme,
            authority: pair.as_ref().map(|(certificate, _)| certificate.clone()),
            has_disks,
        };
        if let Some((certificate, key)) = pair {
            std::fs::write(own.folder.join("cert.pem"), certificate).unwrap();
            std::fs::write(own.folder.join("key.pem"), key).unwrap();
        }
        for number in 0..count {
            own.restart(number);
        }
        let end = Instant::now() + Duration::from_secs(30);
        while !(0..count).all(|number| own.is_healthy(number)) {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        own
    }

    /// Starts a member, with the data that it had.
    pub(crate) fn restart(&mut self, number: usize) {
        let program: PathBuf = std::env::var_os("PUMICE_ETCD")
            .expect("PUMICE_ETCD names the program etcd")
            .into();
        let peers: Vec<String> = (self.members.iter().enumerate())
            .map(|(number, member)| format!("m{number}=http://127.0.0.1:{}", member.peer))
            .collect();
        let member = &self.members[number];
        let (client, peer) = (
            format!("{}://127.0.0.1:{}", self.scheme, member.client),
            format!("http://127.0.0.1:{}", member.peer),
        );
        let mut command = if self.has_disks {
            let mut command = Command::new(program.with_file_name("etcd-with-disk-faults"));
            command.env("DISK_FAULTS", self.disk(number));
            command
        } else {
            let mut command = Command::new(program);
            command.arg("--unsafe-no-fsync");
            command
        };
        command
            .args(["--name", &format!("m{number}"), "--data-dir"])
            .arg(self.folder.join(format!("m{number}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--log-level", "error"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "300"]);
        if self.scheme == "https" {
            let file = |name: &str| self.folder.join(name);
            command.arg("--cert-file").arg(file("cert.pem"));
            command.arg("--key-file").arg(file("key.pem"));
        }
        let log = std::fs::File::create(self.folder.join(format!("m{number}.log"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.members[number].process = Some(command.spawn().unwrap());
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, number: usize) {
        end(&mut self.members[number]);
    }

    fn disk(&self, number: usize) -> PathBuf {
        self.folder.join(format!("m{number}.disk"))
    }

    /// Makes each flush of a member take this time more.
    pub(crate) fn slow_disk(&self, number: usize, more: Duration) {
        std::fs::write(self.disk(number), format!("slow {}", more.as_millis())).unwrap();
    }

    /// Makes the disk of a member full: it ends at its next flush, as etcd does.
    pub(crate) fn fill_disk(&self, number: usize) {
        std::fs::write(self.disk(number), "full").unwrap();
    }

    /// Makes the disk of a member flush as disks do.
    pub(crate) fn mend_disk(&self, number: usize) {
        drop(std::fs::remove_file(self.disk(number)));
    }

    /// True if a member has ended by itself.
    pub(crate) fn has_ended(&mut self, number: usize) -> bool {
        let process = self.members[number].process.as_mut();
        process.is_none_or(|process| process.try_wait().unwrap().is_some())
    }

    /// Number of members.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.members[number].client
    }

    /// True if the member answers reads of the whole cluster.
    pub(crate) fn is_healthy(&self, number: usize) -> bool {
        if self.scheme == "https" {
            return TcpStream::connect((Ipv4Addr::LOCALHOST, self.port(number))).is_ok();
        }
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port(number))) else {
            return false;
        };
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut page = String::new();
        let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut page).is_ok() && page.contains("\"health\":\"true\"")
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let addresses = self
            .members
            .iter()
            .map(|member| format!("{}://127.0.0.1:{}", self.scheme, member.client));
        let mut options = EtcdOptions::new(addresses.collect());
        options.tls = self.authority.as_ref().map(|authority| {
            let authority = Certificate::from_pem(authority);
            ClientTlsConfig::new()
                .ca_certificate(authority)
                .domain_name("localhost")
        });
        options
    }

    /// Posts to etcd's gateway.
    fn post(&self, path: &str, body: &str) -> String {
        let folder = &self.folder;
        let url = format!("{}://localhost:{}{path}", self.scheme, self.port(0));
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail-with-body", "--data", body, &url]);
        if self.scheme == "https" {
            command.arg("--cacert").arg(folder.join("cert.pem"));
        }
        let done = command.output().unwrap();
        assert!(
            done.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&done.stdout)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    /// Number of keys that begin so.
    pub(crate) fn count(&self, options: &EtcdOptions, start: &str) -> u64 {
        let (key, end) = range(options, start);
        let body = format!("{{\"key\":\"{key}\",\"range_end\":\"{end}\",\"count_only\":true}}");
        let page = self.post("/v3/kv/range", &body);
        let count = page
            .split("\"count\":\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Removes the keys that begin so.
    pub(crate) fn remove(&self, options: &EtcdOptions, start: &str) {
        let (key, end) = range(options, start);
        self.post(
            "/v3/kv/deleterange",
            &format!("{{\"key\":\"{key}\",\"range_end\":\"{end}\"}}"),
        );
    }

    /// Makes etcd refuse whatever needs room, as it does when its database has grown to its quota.
    pub(crate) fn set_out_of_space(&self, out: bool) {
        let action = if out { "ACTIVATE" } else { "DEACTIVATE" };
        self.post(
            "/v3/maintenance/alarm",
            &format!("{{\"action\":\"{action}\",\"alarm\":\"NOSPACE\"}}"),
        );
    }

    /// Makes etcd ask for users, and a user that may do everything.
    pub(crate) fn demand_user(&self, name: &str, password: &str) {
        for (user, password) in [("root", "root"), (name, password)] {
            self.post(
                "/v3/auth/user/add",
                &format!("{{\"name\":\"{user}\",\"password\":\"{password}\"}}"),
            );
            self.post(
                "/v3/auth/user/grant",
                &format!("{{\"user\":\"{user}\",\"role\":\"root\"}}"),
            );
        }
        self.post("/v3/auth/enable", "{}");
    }
}

/// Keys that begin so, in base 64.
fn range(options: &EtcdOptions, start: &str) -> (String, String) {
    let key = format!("{}/{start}", options.prefix.trim_end_matches('/'));
    let mut end = key.clone().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (base64(key.as_bytes()), base64(&end))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

const WHOLE: u8 = 0;
const NO_REPLIES: u8 = 1;
const CUT: u8 = 2;

/// Proxy in front of one port. Connections that are cut stay open and carry nothing, as when a network drops packets.
pub(crate) struct CuttableProxy {
    port: u16,
    state: Arc<AtomicU8>,
}

impl CuttableProxy {
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(WHOLE)));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else {
                    continue;
                };
                let (near_out, far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
                std::thread::spawn(move || pump(near, far_out, &one, CUT));
                std::thread::spawn(move || pump(far, near_out, &other, NO_REPLIES));
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Carries requests, and no replies.
    pub(crate) fn cut_replies(&self) {
        self.state.store(NO_REPLIES, Ordering::SeqCst);
    }

    /// Carries nothing.
    pub(crate) fn cut(&self) {
        self.state.store(CUT, Ordering::SeqCst);
    }

    /// Carries everything again. What was held up is lost with its connections.
    pub(crate) fn mend(&self) {
        self.state.store(WHOLE, Ordering::SeqCst);
    }
}

/// Carries bytes one way, until the way is cut: then the bytes are dropped, and the connection ends when it is mended.
fn pump(mut from: TcpStream, mut to: TcpStream, state: &AtomicU8, cut_from: u8) {
    let mut buffer = [0; 16_384];
    let mut has_lost = false;
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    loop {
        let is_cut = state.load(Ordering::SeqCst) >= cut_from;
        if has_lost && !is_cut {
            break;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) if is_cut => has_lost = true,
            Ok(read) => {
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => break,
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
