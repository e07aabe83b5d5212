//! Switches of plugins: one per hook.

macro_rules! switches {
    ($($name:ident $key:literal $default:ident $doc:literal)*) => {
        /// Switch of a plugin: one per hook.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Switch { $(#[doc = $doc] $name,)* }

        impl Switch {
            /// All switches, in Volcano's order.
            pub const ALL: [Switch; 25] = [$(Switch::$name,)*];

            /// Key in documents. The prefix is irregular, as upstream.
            pub fn key(self) -> &'static str {
                match self { $(Switch::$name => $key,)* }
            }

            /// True if the switch is on by default.
            pub fn default_on(self) -> bool {
                match self { $(Switch::$name => switches!(@ $default),)* }
            }
        }
    };
    (@ on) => { true };
    (@ unset) => { false };
}

switches! {
    JobOrder "enableJobOrder" on "Order of jobs."
    Hierarchy "enableHierarchy" unset "Hierarchical queues of `drf`."
    JobReady "enableJobReady" on "Is a job ready to run."
    JobPipelined "enableJobPipelined" on "Is a job pipelined."
    TaskOrder "enableTaskOrder" on "Order of tasks."
    Preemptable "enablePreemptable" on "Victims of preemption."
    Reclaimable "enableReclaimable" on "Victims of reclaim."
    Preemptive "enablePreemptive" on "May a queue preempt."
    QueueOrder "enableQueueOrder" on "Order of queues."
    ClusterOrder "enabledClusterOrder" unset "Order of clusters."
    Predicate "enablePredicate" on "May a task run on a node."
    BestNode "enableBestNode" on "Choice of one node."
    NodeOrder "enableNodeOrder" on "Score of nodes."
    TargetJob "enableTargetJob" on "Choice of one job."
    ReservedNodes "enableReservedNodes" on "Reserved nodes."
    JobEnqueued "enableJobEnqueued" on "May a job enter the queue."
    Victim "enabledVictim" on "Victims of a plugin's own."
    JobStarving "enableJobStarving" on "Is a job starving."
    Overused "enabledOverused" on "Is a queue over its share."
    Allocatable "enabledAllocatable" on "May a queue take a task."
    HyperNodeOrder "enabledHyperNodeOrder" on "Score of hypernodes."
    SubJobReady "enabledSubJobReady" on "Is a part of a job ready."
    SubJobPipelined "enabledSubJobPipelined" on "Is a part of a job pipelined."
    SubJobOrder "enabledSubJobOrder" on "Order of parts of jobs."
    HyperNodeGradient "enabledHyperNodeGradient" on "Gradients of hypernodes."
}

impl Switch {
    /// Switch of this key.
    pub fn from_key(key: &str) -> Option<Switch> {
        Switch::ALL.into_iter().find(|switch| switch.key() == key)
    }
}
