//! Files of a cluster, read for `state load`, `state diff`, `policy diff`, `policy test`, `simulate`, `explain`, `place` and
//! `--with`: records, and all that the import did not take or did not understand.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::state_check::{self, StateWarning};
use super::{CommandError, output, state_load};
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Records of files.
#[derive(Debug)]
pub(super) struct ImportedFiles {
    pub(super) cluster: pb::Cluster,
    /// Objects that could not be read, each with the reason.
    pub(super) rejected: Vec<String>,
    /// Number of rejected objects without a readable name.
    pub(super) unnamed: usize,
    /// Rejected objects with a readable name, as batches carry them.
    pub(super) unreadable: Vec<pb::UnreadableRecord>,
    /// Records that hardly mean what their author has in mind.
    pub(super) warnings: Vec<StateWarning>,
    /// Seconds that tasks ran, where the files tell it, by task.
    pub(super) run_seconds: BTreeMap<String, u64>,
}

/// Reads the files. Its warnings are those of the import; [`ImportedFiles::checked`] adds those about the cluster. Notes about fields that Pumice does not use go to standard error.
pub(super) fn read(files: &[PathBuf], amount_rules: AmountRules) -> Result<ImportedFiles, CommandError> {
    let mut import = ClusterImport::new(amount_rules);
    for file in files {
        import.read(&file.display().to_string(), &state_load::read_text(file)?)?;
    }
    for (note, count) in import.notes() {
        output::note(&format!("note: {note} ({count} ×)"));
    }
    let unnamed = import.rejected().iter().filter(|one| one.record.is_none()).count();
    let unreadable = import.unreadable();
    let rejected = import.rejected().iter();
    let rejected = rejected.map(|one| format!("{}: {}", one.object, one.error)).collect();
    let warnings = import.warnings().into_iter().map(StateWarning::from).collect();
    let run_seconds = import.run_seconds().clone();
    Ok(ImportedFiles {
        cluster: import.into_cluster(),
        rejected,
        unnamed,
        unreadable,
        warnings,
        run_seconds,
    })
}

/// Reads the files of one question. An object that cannot be read is an error: without it the answer would be wrong.
pub(super) fn read_for_query(files: &[PathBuf], amount_rules: AmountRules) -> Result<ImportedFiles, CommandError> {
    let imported = read(files, amount_rules)?;
    let Some(rejected) = imported.rejected.first() else {
        return Ok(imported.checked());
    };
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Err(CommandError::message(format!(
        "error: {}: {rejected}",
        names.join(", ")
    )))
}

impl ImportedFiles {
    /// Names on standard error the warnings, without those about records that the server knows.
    pub(super) async fn report_unknown(mut self, connection: &mut ClientConnection) -> Result<(), CommandError> {
        state_check::drop_known(connection, None, &mut self.warnings).await?;
        self.report();
        Ok(())
    }

    /// Adds the warnings about the cluster as a whole.
    pub(super) fn checked(mut self) -> Self {
        self.warnings.extend(state_check::check_cluster(&self.cluster));
        self
    }

    /// Names on standard error the objects that are left out, and the warnings.
    pub(super) fn report(&self) {
        for rejected in &self.rejected {
            output::note(&format!("refused, and so left out: {rejected}"));
        }
        state_check::report(&self.warnings);
    }
}
