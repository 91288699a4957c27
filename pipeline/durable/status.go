package durable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tutti-server/tutti/core/job"
)

// The times after which a job counts as waiting.
const (
	queryTimeout = 2 * time.Second
	// patience is for a worker that takes a task: one that is idle takes it at once.
	patience = 5 * time.Second
	// pollAge is how old the last poll of a worker that runs may be: a poll takes up to a minute.
	pollAge     = 70 * time.Second
	maxProblems = 20
)

// Show returns a job. See job.Service.
func (s *Service) Show(ctx context.Context, id string) (*job.Status, error) {
	ctx, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	d, err := s.s.Client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, s.coded(err, id)
	}
	st, p := s.fromInfo(d.GetWorkflowExecutionInfo())
	if st.State.Final() {
		return st, nil
	}
	asked := false
	if len(d.GetPendingActivities()) > 0 || p == nil || time.Since(scheduled(d)) < s.patience {
		if now := s.query(ctx, id); now != nil {
			asked = true
			fill(st, now)
		}
	}
	if st.State.Final() { // and Temporal does not know it yet: a job that is submitted again now would be this run
		st.State, st.Reason, st.Ended = job.Running, "", time.Time{}
		return st, nil
	}
	s.pending(ctx, st, d, asked)
	return st, nil
}

// scheduled returns when the workflow's task was made that no worker has taken; now when there is none.
func scheduled(d *workflowservice.DescribeWorkflowExecutionResponse) time.Time {
	if t := d.GetPendingWorkflowTask().GetOriginalScheduledTime(); t != nil {
		return t.AsTime()
	}
	return time.Now()
}

// query asks the worker that has the workflow for its progress; nil when none answers in time.
func (s *Service) query(ctx context.Context, id string) *progress {
	ctx, done := context.WithTimeout(ctx, queryTimeout)
	defer done()
	v, err := s.s.Client.QueryWorkflow(ctx, id, "", queryProgress)
	if err != nil {
		return nil
	}
	var p progress
	if v.Get(&p) != nil {
		return nil
	}
	return &p
}

// fromInfo returns a job as its memo shows it. The progress is nil for a job that no worker has started yet.
func (s *Service) fromInfo(info *workflowpb.WorkflowExecutionInfo) (*job.Status, *progress) {
	st := &job.Status{ID: info.GetExecution().GetWorkflowId(), State: job.Checking, Created: info.GetStartTime().AsTime()}
	s.decode(info.GetMemo(), memoSpec, &st.Spec)
	p := &progress{}
	if !s.decode(info.GetMemo(), memoProgress, p) {
		p = nil
	} else {
		fill(st, p)
	}
	end := func(state job.State, reason string) {
		st.State, st.Reason, st.Ended = state, cmp.Or(st.Reason, reason), info.GetCloseTime().AsTime()
		st.Rate, st.Left = 0, 0
	}
	switch info.GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		end(job.Completed, "")
	case enums.WORKFLOW_EXECUTION_STATUS_FAILED:
		end(job.Failed, "the workflow failed")
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		end(job.Cancelled, "")
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		end(job.Cancelled, "it was terminated in Temporal")
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		end(job.Failed, "the time limit of Temporal for the workflow passed")
	}
	return st, p
}

// decode reads a field of a memo, and reports whether there is one. Servers without the SDK's newest flags have memos
// without the codec.
func (s *Service) decode(memo *commonpb.Memo, field string, to any) bool {
	payload := memo.GetFields()[field]
	if payload == nil {
		return false
	}
	return s.data.FromPayload(payload, to) == nil || converter.GetDefaultDataConverter().FromPayload(payload, to) == nil
}

// fill copies the progress to the status, and computes the rate.
func fill(st *job.Status, p *progress) {
	st.State, st.Reason, st.Created, st.Ended = p.State, p.Reason, p.Created, p.Ended
	if p.Paused {
		st.State = job.Paused
	}
	st.Rows, st.Chunks, st.Finished, st.Retries = p.Rows, p.Chunks, p.Finished, p.Retries
	st.Fingerprint, st.Manifest = p.Fingerprint, p.Manifest
	if st.State != job.Running || len(p.Samples) == 0 {
		return
	}
	first := p.Samples[0]
	done := p.Rows.Done + p.Rows.Failed
	if seconds := time.Since(first.At).Seconds(); seconds > 0 && done > first.Done {
		st.Rate = float64(done-first.Done) / seconds
		st.Left = float64(max(p.Rows.Total-done, 0)) / st.Rate
	}
}

// pending adds what the job waits for, from the activities that Temporal has.
func (s *Service) pending(ctx context.Context, st *job.Status, d *workflowservice.DescribeWorkflowExecutionResponse, asked bool) {
	var started, stuck int
	var idle *workflowpb.PendingActivityInfo // the one that waits longest for a worker
	var last *workflowpb.PendingActivityInfo // that failed
	for _, a := range d.GetPendingActivities() {
		failed := a.GetLastFailure() != nil
		progresses := a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED && (!failed || a.GetLastHeartbeatTime().AsTime().After(a.GetLastStartedTime().AsTime().Add(time.Second)))
		switch {
		case progresses:
			started++
		case failed:
			stuck++
			last = a
		case a.GetState() == enums.PENDING_ACTIVITY_STATE_SCHEDULED && (idle == nil || a.GetScheduledTime().AsTime().Before(idle.GetScheduledTime().AsTime())):
			idle = a
		}
		if failed {
			st.Retries += int64(a.GetAttempt()) - 1
			st.Problems = append(st.Problems, problem(a))
		}
	}
	slices.SortFunc(st.Problems, func(a, b job.Problem) int { return cmp.Compare(a.Chunk, b.Chunk) })
	st.Problems = st.Problems[:min(len(st.Problems), maxProblems)]
	if st.State == job.Paused || started > 0 {
		return
	}
	switch {
	case stuck > 0:
		st.State, st.Reason = job.Waiting, failure(last)
		if last.GetLastFailure().GetTimeoutFailureInfo() != nil {
			since := last.GetLastStartedTime().AsTime()
			if again := last.GetScheduledTime().AsTime(); again.After(since) { // of the next attempt
				since = again
			}
			s.unpolled(ctx, st, s.queueOf(st, last), since)
		}
	case idle != nil:
		s.unpolled(ctx, st, s.queueOf(st, idle), idle.GetScheduledTime().AsTime())
	case !asked:
		s.unpolled(ctx, st, s.s.Queue, scheduled(d))
	}
}

// queueOf returns the task queue of an activity.
func (s *Service) queueOf(st *job.Status, a *workflowpb.PendingActivityInfo) string {
	if name := a.GetActivityType().GetName(); name == activityCut || name == activityFinish {
		return s.s.Queue
	}
	return modelQueue(s.s.Queue, st.Spec.Model, st.Spec.Device)
}

// failure returns why the last attempt at an activity failed.
func failure(a *workflowpb.PendingActivityInfo) string {
	if a.GetLastFailure().GetTimeoutFailureInfo() != nil {
		return fmt.Sprintf("worker '%s' has stopped, or cannot reach Temporal", a.GetLastWorkerIdentity())
	}
	return strings.TrimSpace(a.GetLastFailure().GetMessage())
}

// unpolled makes the state waiting when no worker takes from a queue a task that is there since a time.
func (s *Service) unpolled(ctx context.Context, st *job.Status, queue string, since time.Time) {
	age := time.Since(since)
	if age < s.patience {
		return
	}
	last, err := s.lastPoll(ctx, queue)
	if err != nil || last.After(since) {
		return
	}
	why := ""
	if time.Since(last) < pollAge {
		// A poll waits for a minute, so that a worker may have sent its last one before. It had got the task.
		why = ": the model was unloaded, its workers have stopped, or they execute other chunks that take long"
	}
	st.State = job.Waiting
	st.Reason = fmt.Sprintf("no worker has taken task queue '%s' for %d s%s; start `tutti serve --jobs` or `tutti worker` with model '%s'%s", queue, int(age.Seconds()), why, st.Spec.Model, at(st.Spec.Device))
}

// at completes the name of a model with the device that it must be on.
func at(device string) string {
	switch device {
	case deviceGPU:
		return " on a GPU"
	case deviceCPU:
		return " on the CPU"
	}
	return ""
}

// polled reports whether a worker takes from a queue.
func (s *Service) polled(ctx context.Context, queue string) (bool, error) {
	last, err := s.lastPoll(ctx, queue)
	return err == nil && time.Since(last) < pollAge, err
}

// lastPoll returns when a worker has polled a queue for the last time; the zero time if none has for minutes.
func (s *Service) lastPoll(ctx context.Context, queue string) (last time.Time, err error) {
	kind := enums.TASK_QUEUE_TYPE_ACTIVITY
	if queue == s.s.Queue {
		kind = enums.TASK_QUEUE_TYPE_WORKFLOW
	}
	d, err := s.s.Client.DescribeTaskQueue(ctx, queue, kind)
	if err != nil {
		return last, err
	}
	for _, p := range d.GetPollers() {
		if at := p.GetLastAccessTime().AsTime(); at.After(last) {
			last = at
		}
	}
	return last, nil
}

// problem returns the failure of an activity that is tried again.
func problem(a *workflowpb.PendingActivityInfo) job.Problem {
	p := job.Problem{Chunk: -1, Attempt: int(a.GetAttempt()) - 1, Worker: a.GetLastWorkerIdentity(), Error: failure(a)}
	if t := a.GetNextAttemptScheduleTime(); t != nil {
		p.Next = t.AsTime()
	}
	if a.GetState() == enums.PENDING_ACTIVITY_STATE_SCHEDULED && p.Next.IsZero() && a.GetScheduledTime() != nil {
		p.Next = a.GetScheduledTime().AsTime()
	}
	if number, ok := strings.CutPrefix(a.GetActivityId(), chunkIDPrefix); ok {
		p.Chunk, _ = strconv.ParseInt(number, 10, 64) // written by start
	}
	return p
}
