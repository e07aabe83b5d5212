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
  policy?: string;
  policyVersion?: string;
  warnings?: Problem[];
  notEvaluated?: NotEvaluated[];
}

export interface NotEvaluated {
  subject?: string;
  name?: string;
  count?: number;
  effect?: string;
}

export interface Problem {
  code?: number;
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
  pipelined?: Amount[];
  cards?: { card: string; resource: string; count?: string }[];
  invalid?: Problem[];
}

export interface Queue {
  name: string;
  parent?: string;
  weight?: number;
  priority?: number;
  state?: string;
  reclaimable?: boolean;
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
  elastic?: Amount[];
  deserved?: Amount[];
  guarantee?: Amount[];
  capability?: Amount[];
  realCapability?: Amount[];
  share?: Double;
  dominantResource?: string;
}

export interface Job {
  name: string;
  queue?: string;
  creationTime?: string;
  priority?: number;
  phase?: string;
  minMember?: number;
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
  creationTime?: string;
  requests?: ResourceList;
  annotations?: Record<string, string>;
  constraints?: { devices?: { assigned?: number[] } };
}

export interface StoredTask {
  task: Task;
  source?: string;
  assumed?: boolean;
  invalid?: Problem[];
  card?: string;
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
  cards?: { card: string; headroom?: string }[];
  headroom?: string;
}

export interface PlaceResult {
  placed?: boolean;
  groups?: { problem?: Problem; allocated?: { names?: string[] }; pipelined?: { names?: string[] }; blockers?: Rejection[] }[];
  blockers?: Rejection[];
  placedCount?: number;
  minCount?: number;
}

export interface Rank {
  name: string;
  problem?: Problem;
  keys?: { plugin: string; values?: Double[] }[];
  overused?: boolean;
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
  unservedPlugins?: string[];
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
  silence?: string;
  synced?: boolean;
  stale?: boolean;
}

export interface ServerInfo {
  version?: string;
  revision?: Revision;
  sources?: SourceStatus[];
  policies?: string[];
  limits?: { name: string; value?: string }[];
  store?: { durability?: string; problem?: string };
}

export interface Identity {
  identity?: string;
  kind?: string;
  roles?: string[];
}
