// What the API answers, as far as the pages use it. A test compares the names with docs/openapi.json.

export interface ContentClaim {
  container?: string | null;
  section?: string | null;
  identifier?: string | null;
  offset?: number | null;
  size?: number | null;
}

export interface EventDocument {
  event_id?: number;
  event_type: string;
  event_time: number;
  component_id: string;
  component_type: string;
  component_name?: string | null;
  process_group_id?: string | null;
  process_group_name?: string | null;
  flowfile_uuid: string;
  file_size: number;
  previous_file_size?: number | null;
  event_duration?: number;
  flowfile_entry_date?: number | null;
  lineage_start_date?: number | null;
  transit_uri?: string | null;
  alternate_identifier_uri?: string | null;
  source_system_flowfile_identifier?: string | null;
  details?: string | null;
  relationship?: string | null;
  source_queue_identifier?: string | null;
  parent_uuids?: string[];
  child_uuids?: string[];
  previous_attributes?: Record<string, string | null>;
  updated_attributes?: Record<string, string | null>;
  content_claim?: ContentClaim | null;
  previous_content_claim?: ContentClaim | null;
  source_format?: string | null;
  source_node?: string | null;
  source_host?: string | null;
  source_ordinal?: string | null;
}

export interface Listed {
  writer: string;
  event: EventDocument;
}

export interface EventPage {
  as_of: Record<string, number>;
  total: number;
  items: Listed[];
  next: string | null;
  lost: number;
  notices?: string[];
}

export interface ContentPlace {
  availability: string;
  size: number | null;
  href: string | null;
}

export interface OneEvent {
  as_of: Record<string, number>;
  writer: string;
  event: EventDocument;
  attributes: Record<string, string>;
  content: ContentPlace | null;
  previous_content: ContentPlace | null;
  links: Record<string, string>;
}

export interface Facets {
  facets: Record<string, Record<string, number>>;
  notices?: string[];
}

export interface Fields {
  fields: string[];
  attributes: string[];
  event_types: string[];
  facets: string[];
}

export interface Welcome {
  version: string;
  can: string[];
  writers: string[];
  links: Record<string, string>;
  notices?: string[];
}

export interface LineageEvent {
  writer: string;
  event: EventDocument;
  failed?: boolean;
}

export interface LineageNode {
  uuid: string;
  kind: string;
  events: LineageEvent[];
  parents: string[];
  children: string[];
  cut?: string | null;
  namespace?: string | null;
  name?: string | null;
  version?: string | null;
  failed?: boolean;
}

export interface LineageDocument {
  as_of: Record<string, number>;
  starts: string[];
  nodes: LineageNode[];
  events: number;
  is_complete: boolean;
  frontier: Record<string, string>;
  identifiers: Record<string, string[]>;
  unknown_events: Record<string, unknown>[];
  notices?: string[];
}

export interface TransactionSummary {
  revision: number;
  commit_time_ms: number;
  uuid: string;
  previous_digest: string;
  files_added: number;
  events_added: number;
  shards_added: number;
  removed: number;
  other: string[];
  bytes_added: number;
  waited_ms?: number | null;
  reasons?: StatedReason[];
}

export interface StatedReason {
  kind: string;
  name: string;
  reason?: string | null;
  who?: string | null;
  events?: number | null;
  repair?: StatedRepair | null;
}

export interface StatedRepair {
  id: string;
  expected_sha256?: string | null;
  found_sha256?: string | null;
  offsets?: number[];
  lost?: LostRange[];
}

export interface LostRange {
  first_event_id: number;
  last_event_id: number;
}

export interface Timeline {
  writer: string;
  items: TransactionSummary[];
  next: string | null;
}

export interface QuarantineEntry {
  key: string;
  severity: string;
  code: string;
  message: string;
  file: string;
  size_bytes: number;
  node: string | null;
  received_ms: number;
  format?: string;
  pieces?: number;
}

export interface Quarantined {
  items: QuarantineEntry[];
  total: number;
}

export interface Hold {
  name: string;
  reason: string;
  who: string;
  created_ms: number;
  writers: string[];
  event_ids?: number[];
  flowfile_uuids?: string[];
  event_types?: string[];
  attributes?: Record<string, string>;
  from_ms?: number;
  to_ms?: number;
}

export interface Released {
  name: string;
  writers: string[];
}

export interface SoftwarePlace {
  anchor: string;
  author_date: number;
  path: string;
  origin: string | null;
}

export interface SoftwarePlaces {
  swhid: string;
  is_published: boolean;
  is_known: boolean;
  items: SoftwarePlace[];
  is_complete: boolean;
}

export interface ContentContainerStatus {
  writer: string;
  name: string;
  folder: string;
  state: string;
  total_bytes: number | null;
  free_bytes: number | null;
}

export interface StripeStatus {
  name: string;
  folder: string;
  state: string;
  is_retired: boolean;
  logs: number;
  log_bytes: number;
  total_bytes: number | null;
  free_bytes: number | null;
}

export interface ScrubStatus {
  pieces: number;
  last_run_ms: number | null;
  last_round_ms: number | null;
  is_behind: boolean;
  damaged: number;
}

export interface KeptAttestation {
  file: string;
  state: string;
  said: string[];
  writer?: string | null;
  revision?: number | null;
  attested_ms?: number | null;
  commit_time_ms?: number | null;
  digest?: string | null;
  public_key?: string | null;
}

export interface Attestations {
  items: KeptAttestation[];
}

export interface Holds {
  items: Hold[];
}

export interface WriterStatus {
  writer: string;
  is_held: boolean;
  events_live: number;
  events_waiting: number;
  events_lost: number;
  logs: number;
  log_bytes: number;
  shards: number;
  shard_bytes: number;
  revision: number;
  last_commit_ms: number | null;
  missing_containers?: string[];
  journals_of_others?: number;
  journals_waiting?: number;
  waiting_since_ms?: number | null;
}

export interface ContentsNotHandedOver {
  writer: string;
  claims: number;
  bytes: number;
}

export interface DiskStatus {
  folder: string;
  state: string;
  total_bytes: number | null;
  free_bytes: number | null;
}

export interface Connection {
  name: string;
  count_max?: number;
  bytes_max?: number;
  consumer?: string | null;
}

export interface QueueStatus {
  connection: Connection;
  count: number;
  content_bytes: number;
  oldest_ms: number | null;
  is_full: boolean;
}

export interface BudgetStatus {
  used_bytes: number;
  kinds: Record<string, number>;
  waiting_bytes: number;
  limit_bytes: number | null;
  holds: number;
}

export interface Pending {
  sealed_groups: number;
  abandoned_journals: number;
  live_journals: number;
  staged_units: number;
  groups_not_handed_over?: number;
}

export interface RepositoryStatus {
  root: string;
  slots: number;
  slots_taken: number;
  pending: Pending;
  quarantined: number;
  budget: BudgetStatus;
  disks: DiskStatus[];
  writers: WriterStatus[];
  queues?: QueueStatus[];
  scrub?: ScrubStatus | null;
  stripes?: StripeStatus[];
  content_containers?: ContentContainerStatus[];
  contents_not_handed_over?: ContentsNotHandedOver[];
  notices?: string[];
}

export interface Expiring {
  writer: string;
  path: string;
  why: string;
  events: number;
  bytes: number;
}

export interface HeldLog {
  writer: string;
  path: string;
  holds: string[];
  bytes: number;
}

export interface Hiding {
  rule: string;
}

export interface RetentionPlan {
  now_ms: number;
  used_bytes: number;
  after_bytes: number;
  limit_bytes: number | null;
  expiring: Expiring[];
  held: HeldLog[];
  hiding: Hiding[];
  problem?: string | null;
}

export interface LogOverview {
  path: string;
  events: number;
  size_bytes: number;
  first_event_id: number;
  last_event_id: number;
  sha256: string;
}

export interface ShardOverview {
  name: string;
  documents: number;
  size_bytes: number;
}

export interface ReasonOverview {
  name: string;
  reason: string;
  who: string | null;
  created_ms: number;
  events: number | null;
}

export interface DifferenceSummary {
  added: LogOverview[];
  removed: LogOverview[];
  shards_added: ShardOverview[];
  shards_removed: ShardOverview[];
  tombstones_added: ReasonOverview[];
  tombstones_removed: ReasonOverview[];
  holds_added: ReasonOverview[];
  holds_removed: ReasonOverview[];
  losses_added: ReasonOverview[];
  losses_removed: ReasonOverview[];
  repairs?: StatedReason[];
}

export interface CatalogDifference {
  writer: string;
  former: number;
  later: number;
  sizes: Record<string, number>;
  entries: DifferenceSummary;
}

export interface CatalogChain {
  writer: string;
  revision: number | null;
  digest: string | null;
  revisions: number;
  checkpoints: number;
  defects: string[];
  notices: string[];
}

export interface RefusedReplay {
  writer: string;
  event_id: number;
  code: string;
  message: string;
}

export interface SqlRows {
  columns: string[];
  types: string[];
  rows: unknown[][];
  is_cut: boolean;
  notices?: string[];
}

export interface PlanOverview {
  id: string;
  made_ms: number;
  revisions: Record<string, number>;
  query: string;
  as_of: string | null;
  events: number;
  bytes: number;
  queues: Record<string, number>;
  refused_by_code: Record<string, number>;
  refused: RefusedReplay[];
  notices: string[];
}

export interface CheckOverview {
  plan: string;
  done: number;
  left: number;
  left_bytes: number;
  changed: RefusedReplay[];
}

export interface Job {
  id: string;
  kind: string;
  subject: string;
  user: string;
  state: string;
  created_ms: number;
  started_ms?: number | null;
  ended_ms?: number | null;
  done?: number;
  total?: number | null;
  unit?: string;
  result?: Record<string, unknown> | null;
  problem?: ProblemDocument | null;
}

export interface JobList {
  items: Job[];
  total: number;
}

export interface UnitReport {
  unit: string;
  events?: number;
  seconds?: number;
  note?: string | null;
  error?: string | null;
}

export interface StepReport {
  step: string;
  units: number;
  events: number;
  seconds: number;
  failed: number;
  details: UnitReport[];
}

export interface RunOverview {
  run: string;
  last_ms: number;
  steps: string[];
  units: number;
  events: number;
  failed: number;
  seconds: number;
}

export interface RunList {
  items: RunOverview[];
  total: number;
  notices?: string[];
}

export interface OneRun {
  run: string;
  steps: StepReport[];
}

export interface DagRunOverview {
  dag_id: string;
  run_id: string;
  state: string | null;
  started_ms: number | null;
  ended_ms: number | null;
}

export interface DagRuns {
  items: DagRunOverview[];
  notices?: string[];
}

export interface AssetContent {
  writer: string;
  event_id: number;
  event_type: string;
  time_ms: number;
  component: string | null;
  name: string;
  content: ContentPlace | null;
  previous_content: ContentPlace | null;
}

export interface RunAsset {
  flowfile_uuid: string;
  name: string | null;
  component: string | null;
  writer: string | null;
  event_id: number | null;
  time_ms: number | null;
  contents?: AssetContent[] | null;
}

export interface DagRunEvent {
  writer: string;
  event_id: number;
  event_type: string;
  time_ms: number;
  component: string | null;
  state: string | null;
  flowfile_uuid: string;
}

export interface DagRun {
  dag_id: string;
  run_id: string;
  task_id: string | null;
  wrote: RunAsset[];
  read: RunAsset[];
  events: DagRunEvent[];
  is_cut: boolean;
  notices?: string[];
}

export interface HistogramBucket {
  first_ms: number;
  last_ms: number;
  events: number;
}

export interface Histogram {
  buckets: HistogramBucket[];
  total: number;
  notices?: string[];
}

export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  kind: string;
}
