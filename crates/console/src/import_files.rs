//! Files of a cluster, read for `state load`, `state diff`, `policy diff`, `policy test`, `simulate`, `explain`, `place` and
//! `--with`: records, and all that the import did not take or did not understand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::state_check::{self, StateWarning};
use crate::{CommandError, LocalServices, files, output};
use pumice_engine::policy::Release;
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Records of files.
#[derive(Clone, Debug)]
pub struct ImportedFiles {
    /// Records that could be read.
    pub cluster: pb::Cluster,
    /// Objects that could not be read, each with the reason.
    pub rejected: Vec<String>,
    /// Number of rejected objects without a readable name.
    pub unnamed: usize,
    /// Rejected objects with a readable name, as batches carry them.
    pub unreadable: Vec<pb::UnreadableRecord>,
    /// Records that hardly mean what their author has in mind.
    pub warnings: Vec<StateWarning>,
    /// Notes about fields that Pumice does not use, with their numbers.
    notes: BTreeMap<String, u64>,
    /// Run time in seconds, by task. Tasks whose run time the files do not have are absent.
    pub run_seconds: BTreeMap<String, u64>,
}

/// Reads the files and collects the warnings of the import. [`ImportedFiles::checked`] adds warnings about the cluster.
/// Notes about fields that Pumice does not use go to standard error.
pub fn read(files: &[PathBuf], amount_rules: AmountRules) -> Result<ImportedFiles, CommandError> {
    let imported = import(&read_texts(files)?, amount_rules)?;
    imported.print_notes();
    Ok(imported)
}

/// Files whose pods are read by the rules of several releases. The files are read once, as standard input can be, and pods
/// once for all releases with the same rules.
#[derive(Debug)]
pub struct ReleaseFiles {
    texts: Vec<(String, String)>,
    amount_rules: AmountRules,
    imported: RefCell<Vec<(AmountRules, Rc<ImportedFiles>)>>,
}

impl ReleaseFiles {
    /// Reads the files; of `amount_rules` the scheduler counts.
    pub fn read(files: &[PathBuf], amount_rules: AmountRules) -> Result<Self, CommandError> {
        Ok(Self {
            texts: read_texts(files)?,
            amount_rules,
            imported: RefCell::default(),
        })
    }

    /// Records by the rules of a release. Notes about fields that Pumice does not use go to standard error once.
    pub fn under(&self, release: Release) -> Result<Rc<ImportedFiles>, CommandError> {
        let rules = self.amount_rules.of_release(release);
        let mut known = self.imported.borrow_mut();
        if let Some((_, imported)) = known.iter().find(|(own, _)| *own == rules) {
            return Ok(Rc::clone(imported));
        }
        let imported = Rc::new(import(&self.texts, rules)?);
        if known.is_empty() {
            imported.print_notes();
        }
        known.push((rules, Rc::clone(&imported)));
        Ok(imported)
    }
}

/// Texts of files, each with the name of its file.
fn read_texts(files: &[PathBuf]) -> Result<Vec<(String, String)>, CommandError> {
    let text = |file: &PathBuf| Ok((file.display().to_string(), files::read_text(file)?));
    files.iter().map(text).collect()
}

fn import(texts: &[(String, String)], amount_rules: AmountRules) -> Result<ImportedFiles, CommandError> {
    let mut import = ClusterImport::new(amount_rules);
    for (file, text) in texts {
        import.read(file, text)?;
    }
    let imported = import.finish_with_own_groups();
    let rejected = imported.rejected.iter();
    Ok(ImportedFiles {
        unnamed: rejected.clone().filter(|one| one.record.is_none()).count(),
        rejected: rejected.map(|one| format!("{}: {}", one.object, one.error)).collect(),
        notes: imported.notes,
        cluster: imported.cluster,
        unreadable: imported.unreadable,
        warnings: imported.warnings.into_iter().map(StateWarning::from).collect(),
        run_seconds: imported.run_seconds,
    })
}

/// Reads the files of one query. An unreadable object is an error: the result would be wrong without it.
pub fn read_for_query(
    files: &[PathBuf],
    amount_rules: AmountRules,
    services: &dyn LocalServices,
) -> Result<ImportedFiles, CommandError> {
    let imported = read(files, amount_rules)?;
    let Some(rejected) = imported.rejected.first() else {
        return Ok(imported.checked(services));
    };
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Err(CommandError::message(format!(
        "error: {}: {rejected}",
        names.join(", ")
    )))
}

impl ImportedFiles {
    /// Prints the warnings to standard error, except warnings about records that exist on the server.
    pub async fn report_unknown(
        mut self,
        connection: &mut ClientConnection,
        services: &dyn LocalServices,
    ) -> Result<(), CommandError> {
        state_check::drop_known(connection, None, &mut self.warnings, services).await?;
        self.report();
        Ok(())
    }

    /// Adds the warnings about the cluster as a whole.
    #[must_use]
    pub fn checked(mut self, services: &dyn LocalServices) -> Self {
        self.warnings
            .extend(state_check::check_cluster(&self.cluster, services));
        self
    }

    fn print_notes(&self) {
        for (note, count) in &self.notes {
            output::note(&format!("note: {note} ({count} ×)"));
        }
    }

    /// Names on standard error the objects that are left out, and the warnings.
    pub fn report(&self) {
        for rejected in &self.rejected {
            output::note(&format!("refused, and so left out: {rejected}"));
        }
        state_check::report(&self.warnings);
    }
}
