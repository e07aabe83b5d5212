import com.google.protobuf.util.JsonFormat;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import pumice.v1.AdmitItem;
import pumice.v1.AdmitMode;
import pumice.v1.AdmitRequest;
import pumice.v1.AdmitResponse;
import pumice.v1.AdmitSubject;
import pumice.v1.ApplyRequest;
import pumice.v1.Batch;
import pumice.v1.BatchKind;
import pumice.v1.BatchOutcome;
import pumice.v1.CloseSessionRequest;
import pumice.v1.Cluster;
import pumice.v1.CommitSessionRequest;
import pumice.v1.DecisionServiceGrpc;
import pumice.v1.EvaluationRef;
import pumice.v1.Job;
import pumice.v1.JobCommit;
import pumice.v1.JobPhase;
import pumice.v1.ListTasksRequest;
import pumice.v1.ListTasksResponse;
import pumice.v1.NameSet;
import pumice.v1.OpenSessionRequest;
import pumice.v1.OrderRequest;
import pumice.v1.Page;
import pumice.v1.PlaceEffect;
import pumice.v1.PlaceRequest;
import pumice.v1.PlaceResponse;
import pumice.v1.PlaceResult;
import pumice.v1.PlacedGroup;
import pumice.v1.PlacementRejection;
import pumice.v1.Rank;
import pumice.v1.ReleaseAssumptionsRequest;
import pumice.v1.SessionChange;
import pumice.v1.SessionRef;
import pumice.v1.StateServiceGrpc;
import pumice.v1.StoredTask;
import pumice.v1.Task;
import pumice.v1.TaskGroup;
import pumice.v1.TaskStatus;

/** A whole scheduler on generated stubs: it sends its state, decides, commits, binds and reports. */
public final class OwnScheduler {
    private static final String SOURCE = "own-scheduler";

    /** Another process with this source has started: only one may run. */
    private static final class Fenced extends RuntimeException {}

    private final ManagedChannel channel;
    private final Cluster.Builder cluster;
    /** Epoch of this process: its start in nanoseconds since 1970. */
    private final long epoch = ChronoUnit.NANOS.between(Instant.EPOCH, Instant.now());
    private long sequence;
    private boolean synced;
    private Cluster.Builder changed = Cluster.newBuilder();
    /** Task whose first bind fails, as an API server may do. */
    private String failing = "ml/gang-1";
    /** Session of this cycle, and the number of its last change. */
    private String session;
    private long changes;

    private OwnScheduler(ManagedChannel channel, Cluster.Builder cluster) {
        this.channel = channel;
        this.cluster = cluster;
    }

    public static void main(String[] arguments) throws Exception {
        Cluster.Builder cluster = Cluster.newBuilder();
        JsonFormat.parser().merge(Files.readString(Path.of(arguments[0])), cluster);
        String server = arguments.length > 1 ? arguments[1] : "127.0.0.1:7461";
        ManagedChannel channel = ManagedChannelBuilder.forTarget(server).usePlaintext().build();
        try {
            new OwnScheduler(channel, cluster).run(2);
        } finally {
            channel.shutdownNow();
        }
    }

    /** Runs cycles. An error ends its cycle: nothing is bound without a decision. */
    private void run(int cycles) throws InterruptedException {
        for (int done = 0; done < cycles; done++) {
            try {
                cycle();
            } catch (StatusRuntimeException error) {
                System.out.println("no decision, the next cycle tries again: " + error.getStatus().getCode());
                Thread.sleep(1000);
            }
        }
    }

    /** Each call has a deadline. */
    private DecisionServiceGrpc.DecisionServiceBlockingStub decisions() {
        return DecisionServiceGrpc.newBlockingStub(channel).withDeadlineAfter(5, TimeUnit.SECONDS);
    }

    private StateServiceGrpc.StateServiceBlockingStub state() {
        return StateServiceGrpc.newBlockingStub(channel).withDeadlineAfter(5, TimeUnit.SECONDS);
    }

    private void cycle() {
        bindCommitted(); // Left by a cycle that ended in between.
        send();
        session = decisions().openSession(OpenSessionRequest.getDefaultInstance()).getSession();
        changes = 0;
        try {
            decide();
        } finally {
            decisions().closeSession(CloseSessionRequest.newBuilder().setSession(session).build());
        }
        bindCommitted();
        send();
    }

    private void decide() {
        Map<String, Integer> waiting = new HashMap<>();
        NameSet.Builder names = NameSet.newBuilder();
        for (int at = 0; at < cluster.getJobsCount(); at++) {
            if (!pending(cluster.getJobs(at).getName()).isEmpty()) {
                waiting.put(cluster.getJobs(at).getName(), at);
                names.addNames(cluster.getJobs(at).getName());
            }
        }
        if (waiting.isEmpty()) {
            return;
        }
        OrderRequest order = OrderRequest.newBuilder().setAgainst(here(null)).setJobs(names).build();
        for (Rank rank : decisions().order(order).getResult().getJobsList()) {
            place(cluster.getJobs(waiting.get(rank.getName())));
        }
        confirm(waiting);
        CommitSessionRequest commit = CommitSessionRequest.newBuilder().setSession(here(null).getSession()).build();
        for (JobCommit job : decisions().commitSession(commit).getJobsList()) {
            for (PlacementRejection rejection : job.getRejectionsList()) {
                String task = rejection.getPlacement().getTask();
                System.out.println((task.isEmpty() ? job.getJob() : task) + " waits: " + rejection.getReason().getMessage());
            }
        }
    }

    /** The session after its last change, with one more change; null: without one. */
    private EvaluationRef here(SessionChange change) {
        SessionRef.Builder at = SessionRef.newBuilder().setId(session).setAfter(changes);
        if (change != null) {
            at.addChanges(change);
        }
        return EvaluationRef.newBuilder().setSession(at).build();
    }

    /** Admits a job, and places its tasks in the session. */
    private void place(Job job) {
        Job named = Job.newBuilder().setName(job.getName()).build();
        SessionChange enqueued = null;
        if (job.getPhaseValue() <= JobPhase.JOB_PHASE_PENDING_VALUE) {
            AdmitRequest admit = AdmitRequest.newBuilder()
                    .setAgainst(here(null))
                    .setMode(AdmitMode.ADMIT_MODE_TENTATIVE)
                    .addItems(AdmitSubject.newBuilder().setJob(named))
                    .build();
            AdmitResponse admitted = decisions().admit(admit);
            changes = admitted.getMetadata().getEffects().getAppliedThrough();
            if (!admitted.getResult().getItems(0).getPermitted()) {
                System.out.println(job.getName() + " waits: " + reason(admitted.getResult().getItems(0)));
                return;
            }
            enqueued = SessionChange.newBuilder().setJobEnqueued(job.getName()).build();
        }
        PlaceRequest.Builder request = PlaceRequest.newBuilder()
                .setAgainst(here(enqueued))
                .setJob(named)
                .setEffect(PlaceEffect.PLACE_EFFECT_SESSION);
        for (int task : pending(job.getName())) {
            request.addGroups(TaskGroup.newBuilder().addNames(cluster.getTasks(task).getName()));
        }
        PlaceResponse placed = decisions().place(request.build());
        changes = placed.getMetadata().getEffects().getAppliedThrough();
        if (!placed.getResult().getPlaced()) {
            System.out.println(job.getName() + " waits: " + reason(placed.getResult()));
        }
    }

    /** Reserves the quota of the jobs that the session enqueued. Their phase is reported after the commit. */
    private void confirm(Map<String, Integer> jobs) {
        AdmitRequest request =
                AdmitRequest.newBuilder().setAgainst(here(null)).setMode(AdmitMode.ADMIT_MODE_CONFIRM).build();
        AdmitResponse confirmed = decisions().admit(request);
        changes = confirmed.getMetadata().getEffects().getAppliedThrough();
        for (AdmitItem item : confirmed.getResult().getItemsList()) {
            if (item.getPermitted()) {
                Job.Builder job = cluster.getJobsBuilder(jobs.get(item.getJob()));
                changed.addJobs(job.setPhase(JobPhase.JOB_PHASE_INQUEUE));
            } else {
                System.out.println(item.getJob() + " waits: " + reason(item));
            }
        }
    }

    /** An item has either a problem, which concerns the request, or a result. */
    private static String reason(AdmitItem item) {
        return item.hasProblem() ? item.getProblem().getMessage() : item.getReasons(0).getMessage();
    }

    private static String reason(PlaceResult result) {
        return result.getGroupsList().stream()
                .filter(PlacedGroup::hasProblem)
                .findFirst()
                .map(group -> group.getProblem().getMessage())
                .orElseGet(() -> result.getBlockers(0).getReason().getMessage());
    }

    /** Positions of the tasks of a job without a node. */
    private List<Integer> pending(String job) {
        return IntStream.range(0, cluster.getTasksCount())
                .filter(at -> cluster.getTasks(at).getJob().equals(job) && cluster.getTasks(at).getNode().isEmpty())
                .boxed()
                .toList();
    }

    /** Binds committed placements, and releases those that cannot be bound. */
    private void bindCommitted() {
        Map<String, String> nodes = committed();
        for (Task.Builder task : cluster.getTasksBuilderList()) {
            String node = nodes.get(task.getName());
            if (node == null) {
                continue;
            }
            try {
                bind(task, node);
                changed.addTasks(task);
                System.out.println(task.getName() + " -> " + node);
            } catch (IOException error) {
                state().releaseAssumptions(ReleaseAssumptionsRequest.newBuilder().addTasks(task.getName()).build());
                System.out.println(task.getName() + " waits: " + error.getMessage());
            }
        }
    }

    /** Stands for your API server. Binding a task again to the same node changes nothing. */
    private void bind(Task.Builder task, String node) throws IOException {
        if (task.getName().equals(failing)) {
            failing = "";
            throw new IOException("the API server rejected the bind");
        }
        task.setNode(node).setStatus(TaskStatus.TASK_STATUS_BOUND);
    }

    /** Nodes of the own tasks whose placement is committed and not reported. */
    private Map<String, String> committed() {
        Map<String, String> nodes = new HashMap<>();
        String token = "";
        do {
            ListTasksResponse page = state().listTasks(
                    ListTasksRequest.newBuilder().setPage(Page.newBuilder().setToken(token)).build());
            for (StoredTask stored : page.getTasksList()) {
                if (stored.getAssumed() && stored.getSource().equals(SOURCE)) {
                    nodes.put(stored.getTask().getName(), stored.getTask().getNode());
                }
            }
            token = page.getNextPageToken();
        } while (!token.isEmpty());
        return nodes;
    }

    /** Sends a full sync first and after each loss, otherwise what changed. */
    private void send() {
        if (synced && changed.build().equals(Cluster.getDefaultInstance())) {
            return;
        }
        Batch.Builder batch = Batch.newBuilder().setSource(SOURCE).setSourceEpoch(epoch).setSequence(++sequence);
        if (synced) {
            batch.setKind(BatchKind.BATCH_KIND_DELTA).setPut(changed);
        } else {
            batch.setKind(BatchKind.BATCH_KIND_FULL_SYNC_LAST).setPart(1).setPut(cluster);
        }
        synced = false;
        BatchOutcome outcome = state().apply(ApplyRequest.newBuilder().setBatch(batch).build()).getOutcome();
        if (outcome.hasResync()) {
            if (outcome.getResync().getReason().equals("FENCED")) {
                throw new Fenced();
            }
            send();
            return;
        }
        outcome.getRefusedList().forEach(problem -> System.out.println("rejected record: " + problem.getMessage()));
        synced = true;
        changed = Cluster.newBuilder();
    }
}
