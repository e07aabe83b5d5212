// A whole scheduler on generated stubs: it sends its state, decides, commits, binds and reports.
// own_scheduler CLUSTER [HOST:PORT] runs two cycles for a cluster in a file.

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pumice/v1/decision.grpc.pb.h"
#include "pumice/v1/state.grpc.pb.h"

namespace v1 = pumice::v1;

const char kSource[] = "own-scheduler";

// A call failed: this cycle has no decision.
struct CallFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Another process with this source has started: only one may run.
struct Fenced : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Scheduler {
 public:
  Scheduler(const std::shared_ptr<grpc::Channel>& channel, v1::Cluster cluster)
      : decisions_(v1::DecisionService::NewStub(channel)),
        state_(v1::StateService::NewStub(channel)),
        cluster_(std::move(cluster)),
        epoch_(std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1)) {}

  // Runs cycles. An error ends its cycle: nothing is bound without a decision.
  void Run(int cycles) {
    for (int done = 0; done < cycles; ++done) {
      try {
        Cycle();
      } catch (const CallFailed& error) {
        std::cout << "no decision, the next cycle tries again: " << error.what() << std::endl;
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    }
  }

 private:
  // Calls a method of a stub, with a deadline.
  template <typename Stub, typename Request, typename Response>
  Response Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) throw CallFailed("code " + std::to_string(status.error_code()) + ": " + status.error_message());
    return response;
  }

  void Cycle() {
    BindCommitted();  // Left by a cycle that ended in between.
    Send();
    session_ = Call(*decisions_, &v1::DecisionService::Stub::OpenSession, v1::OpenSessionRequest()).session();
    changes_ = 0;
    v1::CloseSessionRequest close;
    close.set_session(session_);
    try {
      Decide();
    } catch (const CallFailed&) {
      grpc::ClientContext context;
      v1::CloseSessionResponse closed;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
      decisions_->CloseSession(&context, close, &closed);
      throw;
    }
    Call(*decisions_, &v1::DecisionService::Stub::CloseSession, close);
    BindCommitted();
    Send();
  }

  void Decide() {
    std::map<std::string, v1::Job*> waiting;
    v1::OrderRequest order;
    for (v1::Job& job : *cluster_.mutable_jobs()) {
      if (Pending(job.name()).empty()) continue;
      waiting[job.name()] = &job;
      order.mutable_jobs()->add_names(job.name());
    }
    if (waiting.empty()) return;
    *order.mutable_against()->mutable_session() = Here();
    const auto ordered = Call(*decisions_, &v1::DecisionService::Stub::Order, order);
    for (const v1::Rank& rank : ordered.result().jobs()) {
      Place(*waiting[rank.name()]);
    }
    Confirm(waiting);
    v1::CommitSessionRequest commit;
    *commit.mutable_session() = Here();
    const auto committed = Call(*decisions_, &v1::DecisionService::Stub::CommitSession, commit);
    for (const v1::JobCommit& job : committed.jobs()) {
      for (const v1::PlacementRejection& rejection : job.rejections()) {
        const std::string& task = rejection.placement().task();
        std::cout << (task.empty() ? job.job() : task) << " waits: " << rejection.reason().message() << std::endl;
      }
    }
  }

  // The session after its last change.
  v1::SessionRef Here() const {
    v1::SessionRef at;
    at.set_id(session_);
    at.set_after(changes_);
    return at;
  }

  // Admits a job, and places its tasks in the session.
  void Place(const v1::Job& job) {
    v1::PlaceRequest request;
    if (job.phase() <= v1::JOB_PHASE_PENDING) {
      v1::AdmitRequest admit;
      *admit.mutable_against()->mutable_session() = Here();
      admit.set_mode(v1::ADMIT_MODE_TENTATIVE);
      admit.add_items()->mutable_job()->set_name(job.name());
      const auto admitted = Call(*decisions_, &v1::DecisionService::Stub::Admit, admit);
      changes_ = admitted.metadata().effects().applied_through();
      const v1::AdmitItem& item = admitted.result().items(0);
      if (!item.permitted()) {
        std::cout << job.name() << " waits: " << Reason(item) << std::endl;
        return;
      }
      *request.mutable_against()->mutable_session() = Here();
      request.mutable_against()->mutable_session()->add_changes()->set_job_enqueued(job.name());
    } else {
      *request.mutable_against()->mutable_session() = Here();
    }
    request.mutable_job()->set_name(job.name());
    request.set_effect(v1::PLACE_EFFECT_SESSION);
    for (const std::string& task : Pending(job.name())) request.add_groups()->add_names(task);
    const auto placed = Call(*decisions_, &v1::DecisionService::Stub::Place, request);
    changes_ = placed.metadata().effects().applied_through();
    if (!placed.result().placed()) {
      std::cout << job.name() << " waits: " << Reason(placed.result()) << std::endl;
    }
  }

  // Reserves the quota of the jobs that the session enqueued. Their phase is reported after the commit.
  void Confirm(const std::map<std::string, v1::Job*>& jobs) {
    v1::AdmitRequest request;
    *request.mutable_against()->mutable_session() = Here();
    request.set_mode(v1::ADMIT_MODE_CONFIRM);
    const auto confirmed = Call(*decisions_, &v1::DecisionService::Stub::Admit, request);
    changes_ = confirmed.metadata().effects().applied_through();
    for (const v1::AdmitItem& item : confirmed.result().items()) {
      if (item.permitted()) {
        v1::Job* job = jobs.at(item.job());
        job->set_phase(v1::JOB_PHASE_INQUEUE);
        *changed_.add_jobs() = *job;
      } else {
        std::cout << item.job() << " waits: " << Reason(item) << std::endl;
      }
    }
  }

  // An item has either a problem, which concerns the request, or a result.
  static std::string Reason(const v1::AdmitItem& item) {
    return item.has_problem() ? item.problem().message() : item.reasons(0).message();
  }

  static std::string Reason(const v1::PlaceResult& result) {
    for (const v1::PlacedGroup& group : result.groups()) {
      if (group.has_problem()) return group.problem().message();
    }
    return result.blockers(0).reason().message();
  }

  // Names of the tasks of a job without a node.
  std::vector<std::string> Pending(const std::string& job) const {
    std::vector<std::string> names;
    for (const v1::Task& task : cluster_.tasks()) {
      if (task.job() == job && task.node().empty()) names.push_back(task.name());
    }
    return names;
  }

  // Binds committed placements, and releases those that cannot be bound.
  void BindCommitted() {
    const std::map<std::string, std::string> nodes = Committed();
    for (v1::Task& task : *cluster_.mutable_tasks()) {
      const auto found = nodes.find(task.name());
      if (found == nodes.end()) continue;
      if (Bind(task, found->second)) {
        *changed_.add_tasks() = task;
        std::cout << task.name() << " -> " << found->second << std::endl;
      } else {
        v1::ReleaseAssumptionsRequest release;
        release.add_tasks(task.name());
        Call(*state_, &v1::StateService::Stub::ReleaseAssumptions, release);
        std::cout << task.name() << " waits: the API server rejected the bind" << std::endl;
      }
    }
  }

  // Stands for your API server, which may reject a bind. Binding a task again to the same node changes nothing.
  bool Bind(v1::Task& task, const std::string& node) {
    if (task.name() == failing_) {
      failing_.clear();
      return false;
    }
    task.set_node(node);
    task.set_status(v1::TASK_STATUS_BOUND);
    return true;
  }

  // Nodes of the own tasks whose placement is committed and not reported.
  std::map<std::string, std::string> Committed() {
    std::map<std::string, std::string> nodes;
    v1::ListTasksRequest request;
    do {
      const auto page = Call(*state_, &v1::StateService::Stub::ListTasks, request);
      for (const v1::StoredTask& stored : page.tasks()) {
        if (stored.assumed() && stored.source() == kSource) nodes[stored.task().name()] = stored.task().node();
      }
      request.mutable_page()->set_token(page.next_page_token());
    } while (!request.page().token().empty());
    return nodes;
  }

  // Sends a full sync first and after each loss, otherwise what changed.
  void Send() {
    if (synced_ && changed_.ByteSizeLong() == 0) return;
    v1::ApplyRequest request;
    v1::Batch& batch = *request.mutable_batch();
    batch.set_source(kSource);
    batch.set_source_epoch(epoch_);
    batch.set_sequence(++sequence_);
    if (synced_) {
      batch.set_kind(v1::BATCH_KIND_DELTA);
      *batch.mutable_put() = changed_;
    } else {
      batch.set_kind(v1::BATCH_KIND_FULL_SYNC_LAST);
      batch.set_part(1);
      *batch.mutable_put() = cluster_;
    }
    synced_ = false;
    const auto outcome = Call(*state_, &v1::StateService::Stub::Apply, request).outcome();
    if (outcome.has_resync()) {
      if (outcome.resync().reason() == "FENCED") throw Fenced(outcome.resync().message());
      return Send();
    }
    for (const v1::Problem& problem : outcome.refused()) std::cout << "rejected record: " << problem.message() << std::endl;
    synced_ = true;
    changed_.Clear();
  }

  std::unique_ptr<v1::DecisionService::Stub> decisions_;
  std::unique_ptr<v1::StateService::Stub> state_;
  v1::Cluster cluster_;
  v1::Cluster changed_;
  // Epoch of this process: its start in nanoseconds since 1970.
  uint64_t epoch_;
  uint64_t sequence_ = 0;
  bool synced_ = false;
  // Session of this cycle, and the number of its last change.
  std::string session_;
  uint64_t changes_ = 0;
  // Task whose first bind fails, as an API server may do.
  std::string failing_ = "ml/gang-1";
};

int main(int count, char** arguments) {
  std::stringstream text;
  text << std::ifstream(count > 1 ? arguments[1] : "").rdbuf();
  v1::Cluster cluster;
  if (!google::protobuf::util::JsonStringToMessage(text.str(), &cluster).ok()) {
    std::cerr << "usage: own_scheduler CLUSTER [HOST:PORT]" << std::endl;
    return 2;
  }
  const std::string server = count > 2 ? arguments[2] : "127.0.0.1:7461";
  try {
    Scheduler(grpc::CreateChannel(server, grpc::InsecureChannelCredentials()), cluster).Run(2);
  } catch (const Fenced& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
