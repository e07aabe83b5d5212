/**
 * Messages of `proto/pumice/v1` as protobuf JSON, as far as the console reads them. A field with its zero value is absent,
 * 64-bit integers are strings. The comments of the protocol files define each field and its unit.
 */

/** A double: JSON has no infinities and no NaN. */
export type Double = number | 'NaN' | 'Infinity' | '-Infinity';

export interface Amount {
  resource: string;
  value?: Double;
}

export interface ResourceList {
  items?: Record<string, string>;
}

export interface Revision {
  epoch?: string;
  number?: string;
}

export interface Metadata {
  revision?: Revision;
  notEvaluated?: NotEvaluated[];
}

/** State and time that a request is evaluated against. Without `inline`: the latest state. */
export interface EvaluationRef {
  /** Time of the decision in whole seconds. The server reads no clock for a decision. */
  now: string;
  inline?: { cluster: object; policyDocument: string };
}

export interface NotEvaluated {
  subject?: string;
  name?: string;
  effect?: string;
}

export interface Problem {
  reason?: string;
  message?: string;
  field?: string;
}

export interface Node {
  name: string;
  labels?: Record<string, string>;
  allocatable?: ResourceList;
  oversubscription?: ResourceList;
  ready?: boolean;
  unschedulable?: boolean;
  devices?: { model?: string; count?: number; memoryMib?: number };
}

export interface NodeStatus {
  node: Node;
  source?: string;
  used?: Amount[];
  releasing?: Amount[];
  cards?: NodeCard[];
  invalid?: Problem[];
}

export interface NodeCard {
  card: string;
  resource: string;
  count?: string;
}

export interface Queue {
  name: string;
  parent?: string;
  weight?: number;
  priority?: number;
  state?: string;
  reclaimable?: boolean;
  capability?: ResourceList;
  deserved?: ResourceList;
  guarantee?: ResourceList;
}

export interface QueueStatus {
  queue: Queue;
  source?: string;
  accounts?: Account[];
  invalid?: Problem[];
}

export interface Account {
  plugin: string;
  allocated?: Amount[];
  request?: Amount[];
  inqueue?: Amount[];
  deserved?: Amount[];
  guarantee?: Amount[];
  capability?: Amount[];
  realCapability?: Amount[];
}

export interface Job {
  name: string;
  queue?: string;
  creationTime?: string;
  phase?: string;
  minMember?: number;
  /** Minimum number of tasks by role. */
  minTaskMember?: Record<string, number>;
  subGroupPolicies?: SubGroupPolicy[];
}

export interface SubGroupPolicy {
  name: string;
  /** Tasks that make a group ready. */
  size?: number;
  /** Groups that must be ready. */
  minGroups?: number;
}

export interface JobStatus {
  job: Job;
  accounts?: Account[];
  invalid?: Problem[];
  allocated?: Amount[];
}

export interface Task {
  name?: string;
  job?: string;
  status?: string;
  node?: string;
  gated?: boolean;
  schedulingGates?: string[];
  role?: string;
  /** Group of the job: the name of its policy, "/", and the values of its labels. */
  subGroup?: string;
  creationTime?: string;
  requests?: ResourceList;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

export interface StoredTask {
  task: Task;
  invalid?: Problem[];
}

export interface Reservation {
  job: string;
  queue?: string;
  reserved?: Amount[];
  outstanding?: Amount[];
  expireTime?: string;
}

export interface Measurement {
  name: string;
  value?: Double;
  unit?: string;
}

export interface Reason {
  plugin?: string;
  code?: string;
  message?: string;
  resolution?: string;
  resource?: string;
  measurements?: Measurement[];
}

export interface Rejection {
  reason?: Reason;
  count?: number;
  samples?: { node: string; measurements?: Measurement[] }[];
}

export interface FilterItem {
  problem?: Problem;
  fit?: { names?: string[] };
  fitCount?: number;
  rejections?: Rejection[];
  notEvaluated?: NotEvaluated[];
}

export interface ScoreItem {
  problem?: Problem;
  nodes?: { names?: string[] };
  totals?: Double[];
  filter?: FilterItem;
}

export interface AdmitItem {
  problem?: Problem;
  permitted?: boolean;
  reasons?: Reason[];
  headroom?: string;
}

export interface PlaceResult {
  placed?: boolean;
  groups?: { allocated?: { names?: string[] }; pipelined?: { names?: string[] }; blockers?: Rejection[]; problem?: Problem }[];
  blockers?: Rejection[];
  placedCount?: number;
}

export interface Rank {
  name: string;
  keys?: { plugin: string; values?: Double[] }[];
  /** For a job: whether it may evict others. */
  state?: { starving?: boolean };
}

export interface OrderResult {
  queues?: Rank[];
  jobs?: Rank[];
}

export interface Policy {
  name: string;
  version?: string;
  hash?: string;
  document?: string;
  /** The document with defaults and repairs. */
  effectiveDocument?: string;
  origin?: string;
  acceptTime?: string;
  active?: boolean;
  caller?: string;
}

export interface Diagnostic {
  severity?: string;
  code?: string;
  message?: string;
  line?: number;
  column?: number;
  path?: string;
}

export interface PolicyReport {
  diagnostics?: Diagnostic[];
}

export interface ReloadPolicyResponse {
  policy?: Policy;
  unchanged?: boolean;
  report?: PolicyReport;
  difference?: string;
  durability?: string;
}

export interface SourceStatus {
  position?: { source?: string };
  stale?: boolean;
}

export interface ServerInfo {
  version?: string;
  revision?: Revision;
  sources?: SourceStatus[];
  policies?: string[];
  limits?: { name: string; value?: string }[];
  store?: { problem?: string };
}

export interface Identity {
  identity?: string;
  kind?: string;
  roles?: string[];
}
