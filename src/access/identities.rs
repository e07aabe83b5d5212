//! Identities file: maps certificates and tokens to callers, with their roles and sources. For example, `team-*`
//! permits all sources with this prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::roles::{Role, RoleSet};
use crate::yaml_file::{self, FileProblem, problem, unknown_key};
use pumice_engine::policy::{Mark, YamlLimits, YamlNode, YamlValue, suggestion, yaml};
use pumice_kubernetes::object::has_name_characters;

/// Largest file of identities, in bytes.
pub(super) const FILE_BYTES: usize = 1 << 20;
/// Largest file of tokens, in bytes.
pub(super) const TOKEN_FILE_BYTES: usize = 64 << 10;
/// Maximum number of tokens in a file: the present one, and those before and after it.
const FILE_TOKENS: usize = 16;
/// Shortest token, in bytes: what is shorter can be guessed.
const TOKEN_BYTES: usize = 16;
/// Longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 4_096;
/// Longest name, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;
/// Maximum number of audiences of service-account tokens.
const MAX_AUDIENCES: usize = 16;
/// Maximum number of identities.
const MAX_IDENTITIES: usize = 10_000;
/// Top-level keys of `identities_file`.
const FILE_KEYS: [&str; 5] = ["identities", "local", "anonymous", "open", "token_review"];
const IDENTITY_KEYS: [&str; 6] = [
    "name",
    "certificates",
    "token_file",
    "service_accounts",
    "roles",
    "sources",
];

/// SHA-256, because tokens themselves are not kept.
pub(super) type TokenDigest = [u8; 32];

/// Identity of callers: a name, with roles and sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the identity, such as `alice` or `volcano`.
    pub name: Arc<str>,
    /// Roles that callers with this identity have.
    pub roles: RoleSet,
    /// Sources whose records it may send: names, or begins of names that end in `*`.
    pub sources: Vec<Arc<str>>,
}

impl Identity {
    /// True if the identity may send records of the source.
    pub fn may_write(&self, source: &str) -> bool {
        let allows = |pattern: &Arc<str>| match pattern.strip_suffix('*') {
            Some(begin) => source.starts_with(begin),
            None => **pattern == *source,
        };
        self.roles.contains(Role::Sync) && self.sources.iter().any(allows)
    }
}

/// Identity as the file has it, before its tokens are read.
#[derive(Clone, Debug)]
pub(super) struct IdentityEntry {
    pub(super) identity: Arc<Identity>,
    pub(super) certificates: Vec<Arc<str>>,
    pub(super) token_file: Option<PathBuf>,
    /// Service accounts of Kubernetes, as `namespace/name`.
    pub(super) service_accounts: Vec<Arc<str>>,
}

/// Content of the file of identities.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentityFile {
    pub(super) entries: Vec<IdentityEntry>,
    /// Callers without credentials on loopback and on the Unix socket.
    pub(super) local: Option<Arc<Identity>>,
    /// Other callers without credentials.
    pub(super) anonymous: Option<Arc<Identity>>,
    pub(super) probes_open: bool,
    pub(super) metrics_open: bool,
    /// Audiences of service-account tokens; none: no such token is verified.
    pub(super) audiences: Arc<[Arc<str>]>,
}

/// Identities by what proves them.
#[derive(Debug, Default)]
pub(super) struct IdentityTable {
    pub(super) by_certificate: BTreeMap<Arc<str>, Arc<Identity>>,
    pub(super) by_token: BTreeMap<TokenDigest, Arc<Identity>>,
    /// By service account, `namespace/name`.
    pub(super) by_account: BTreeMap<Arc<str>, Arc<Identity>>,
    /// Audiences of service-account tokens; none: no such token is verified.
    pub(super) audiences: Arc<[Arc<str>]>,
    pub(super) local: Option<Arc<Identity>>,
    pub(super) anonymous: Option<Arc<Identity>>,
    pub(super) probes_open: bool,
    pub(super) metrics_open: bool,
    /// Number of identities with credentials.
    pub(super) count: usize,
}

/// Digest by which a token is known: none is kept as it is.
pub(super) fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// Digests of the tokens in a file, one a line.
pub(super) fn read_tokens(text: &str) -> Result<Vec<TokenDigest>, FileProblem> {
    let mut digests = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let token = line.trim();
        if token.is_empty() {
            continue;
        }
        let mark = Mark {
            line: u32::try_from(at + 1).unwrap_or(u32::MAX),
            column: 1,
        };
        if token.len() < TOKEN_BYTES || token.len() > MAX_TOKEN_BYTES {
            let message =
                format!("a token has {TOKEN_BYTES} to {MAX_TOKEN_BYTES} characters (`openssl rand -hex 32` makes one)");
            return Err(problem(mark, message));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(problem(mark, "a token is printable ASCII without blanks, one a line"));
        }
        if digests.len() >= FILE_TOKENS {
            return Err(problem(
                mark,
                format!("more than {FILE_TOKENS} tokens; take out those that are no longer used"),
            ));
        }
        digests.push(digest(token));
    }
    if digests.is_empty() {
        return Err(FileProblem {
            mark: None,
            message: "it has no token".to_owned(),
        });
    }
    Ok(digests)
}

impl IdentityFile {
    /// Reads the file. Paths of token files that are relative begin at `folder`.
    pub(super) fn parse(text: &str, folder: &Path) -> Result<Self, FileProblem> {
        let limits = YamlLimits {
            bytes: FILE_BYTES,
            ..YamlLimits::default()
        };
        let root = yaml::read(text, &limits).map_err(|error| problem(error.mark, error.message))?;
        let mut file = Self {
            probes_open: true,
            metrics_open: true,
            ..Self::default()
        };
        for (key, node) in map(&root, "a file of identities", &FILE_KEYS)? {
            match key {
                "identities" => {
                    for entry in list(node, "`identities`")? {
                        file.entries.push(read_entry(entry, folder)?);
                    }
                    if file.entries.len() > MAX_IDENTITIES {
                        return Err(problem(node.mark, format!("more than {MAX_IDENTITIES} identities")));
                    }
                }
                "local" => file.local = Some(read_bare(node, "local")?),
                "anonymous" => file.anonymous = Some(read_bare(node, "anonymous")?),
                "token_review" => file.audiences = read_token_review(node)?,
                _ => (file.probes_open, file.metrics_open) = read_open(node)?,
            }
        }
        file.check(&root)?;
        Ok(file)
    }

    /// Looks for what two identities share.
    fn check(&self, root: &YamlNode) -> Result<(), FileProblem> {
        let (mut names, mut certificates, mut accounts) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for entry in &self.entries {
            let name = &entry.identity.name;
            if !names.insert(name) {
                return Err(problem(root.mark, format!("two identities have the name `{name}`")));
            }
            for certificate in &entry.certificates {
                if let Some(other) = certificates.insert(certificate, name) {
                    let message = format!("`{certificate}` is a certificate of `{other}` and of `{name}`");
                    return Err(problem(root.mark, message));
                }
            }
            for account in &entry.service_accounts {
                if self.audiences.is_empty() {
                    let message = format!(
                        "`{name}` has `service_accounts`, and no token is verified: say for whom they are, as \
                         `token_review: {{audiences: [pumice]}}`"
                    );
                    return Err(problem(root.mark, message));
                }
                if let Some(other) = accounts.insert(account, name) {
                    let message = format!("`{account}` is a service account of `{other}` and of `{name}`");
                    return Err(problem(root.mark, message));
                }
            }
        }
        Ok(())
    }
}

fn read_entry(node: &YamlNode, folder: &Path) -> Result<IdentityEntry, FileProblem> {
    let (mut name, mut certificates, mut token_file) = (None, Vec::new(), None);
    let (mut roles, mut sources, mut service_accounts) = (None, Vec::new(), Vec::new());
    for (key, value) in map(node, "an identity", &IDENTITY_KEYS)? {
        match key {
            "name" => name = Some(text(value)?),
            "certificates" => certificates = texts(value, "`certificates`")?,
            "token_file" => token_file = Some(folder.join(&*text(value)?)),
            "service_accounts" => service_accounts = read_accounts(value)?,
            "roles" => roles = Some(read_roles(value)?),
            _ => sources = texts(value, "`sources`")?,
        }
    }
    let name = name.ok_or_else(|| problem(node.mark, "an identity has a `name`"))?;
    if certificates.is_empty() && token_file.is_none() && service_accounts.is_empty() {
        let message = format!(
            "`{name}` has neither `certificates` nor a `token_file` nor `service_accounts`: nobody could be it"
        );
        return Err(problem(node.mark, message));
    }
    let identity = identity(node.mark, name, roles, sources)?;
    Ok(IdentityEntry {
        identity,
        certificates,
        token_file,
        service_accounts,
    })
}

/// Service accounts, as `namespace/name`.
fn read_accounts(node: &YamlNode) -> Result<Vec<Arc<str>>, FileProblem> {
    let accounts = texts(node, "`service_accounts`")?;
    for (account, item) in accounts.iter().zip(list(node, "`service_accounts`")?) {
        let is_account = account
            .split_once('/')
            .is_some_and(|(namespace, name)| has_name_characters(namespace) && has_name_characters(name));
        if !is_account {
            let message = format!("`{account}` is no service account; write it as namespace/name");
            return Err(problem(item.mark, message));
        }
    }
    Ok(accounts)
}

/// Audiences of service-account tokens.
fn read_token_review(node: &YamlNode) -> Result<Arc<[Arc<str>]>, FileProblem> {
    let mut audiences = Vec::new();
    for (_, value) in map(node, "`token_review`", &["audiences"])? {
        audiences = texts(value, "`audiences`")?;
    }
    if audiences.is_empty() || audiences.len() > MAX_AUDIENCES {
        let message = format!(
            "`token_review` has 1 to {MAX_AUDIENCES} `audiences`: names that pods ask their tokens for, such as pumice"
        );
        return Err(problem(node.mark, message));
    }
    Ok(audiences.into())
}

fn identity(
    mark: Mark,
    name: Arc<str>,
    roles: Option<RoleSet>,
    sources: Vec<Arc<str>>,
) -> Result<Arc<Identity>, FileProblem> {
    let Some(roles) = roles.filter(|roles| !roles.is_empty()) else {
        return Err(problem(
            mark,
            format!("`{name}` has no `roles`: read, decide, sync, admin"),
        ));
    };
    let syncs = roles.contains(Role::Sync);
    if syncs && sources.is_empty() {
        let message = format!("`{name}` has the role sync and no `sources`: name those that it may write, or \"*\"");
        return Err(problem(mark, message));
    }
    if !syncs && !sources.is_empty() {
        return Err(problem(mark, format!("`{name}` has `sources` and not the role sync")));
    }
    Ok(Arc::new(Identity { name, roles, sources }))
}

/// Roles and sources of callers without credentials.
fn read_bare(node: &YamlNode, name: &'static str) -> Result<Arc<Identity>, FileProblem> {
    let (mut roles, mut sources) = (None, Vec::new());
    for (key, value) in map(node, &format!("`{name}`"), &["roles", "sources"])? {
        match key {
            "roles" => roles = Some(read_roles(value)?),
            _ => sources = texts(value, "`sources`")?,
        }
    }
    identity(node.mark, name.into(), roles, sources)
}

fn read_roles(node: &YamlNode) -> Result<RoleSet, FileProblem> {
    let mut roles = Vec::new();
    for item in list(node, "`roles`")? {
        let name = text(item)?;
        let role = Role::from_name(&name);
        roles.push(role.ok_or_else(|| {
            let names = Role::ALL.map(Role::name);
            let meant = suggestion::nearest_name(&name, &names).map(|near| format!("; `{near}` was meant?"));
            problem(
                item.mark,
                format!("there is no role `{name}`{}", meant.unwrap_or_default()),
            )
        })?);
    }
    Ok(RoleSet::of(&roles))
}

fn read_open(node: &YamlNode) -> Result<(bool, bool), FileProblem> {
    let (mut probes, mut metrics) = (false, false);
    for item in list(node, "`open`")? {
        match &*text(item)? {
            "probes" => probes = true,
            "metrics" => metrics = true,
            other => {
                return Err(problem(
                    item.mark,
                    format!("`{other}` is neither `probes` nor `metrics`"),
                ));
            }
        }
    }
    Ok((probes, metrics))
}

/// Entries of a map with these keys and no others; nothing is an empty map.
fn map<'n>(
    node: &'n YamlNode,
    what: &str,
    keys: &[&'static str],
) -> Result<Vec<(&'static str, &'n YamlNode)>, FileProblem> {
    let mut known = Vec::new();
    for (key, value) in yaml_file::map(node, what)? {
        let name = text(key)?;
        let Some(found) = keys.iter().find(|known| ***known == *name) else {
            return Err(unknown_key(key.mark, &name, keys));
        };
        known.push((*found, value));
    }
    Ok(known)
}

fn list<'n>(node: &'n YamlNode, what: &str) -> Result<&'n [YamlNode], FileProblem> {
    if let YamlValue::List(items) = &node.value {
        return Ok(items);
    }
    if matches!(node.value, YamlValue::Null) {
        return Ok(&[]);
    }
    Err(problem(
        node.mark,
        format!("{what} is a list, not {}", node.value.kind()),
    ))
}

fn texts(node: &YamlNode, what: &str) -> Result<Vec<Arc<str>>, FileProblem> {
    list(node, what)?.iter().map(text).collect()
}

fn text(node: &YamlNode) -> Result<Arc<str>, FileProblem> {
    let text = yaml_file::text(node)?;
    if text.len() > MAX_TEXT_BYTES {
        return Err(problem(node.mark, format!("it has more than {MAX_TEXT_BYTES} bytes")));
    }
    Ok(text.into())
}
