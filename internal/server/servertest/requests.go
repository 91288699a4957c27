package servertest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// Requests is a job.Requests for tests of front ends: it keeps requests in memory, and executes them when Run is called. It is
// safe for concurrent use.
type Requests struct {
	// Down makes every method fail as if Temporal were away.
	Down bool

	mu   sync.Mutex
	list []*request
}

type request struct {
	job.Request

	status job.RequestStatus
	reply  *job.Reply
	body   string
}

var _ job.Requests = (*Requests)(nil)

// Submit adds a request that waits.
func (q *Requests) Submit(_ context.Context, req *job.Request) (*job.RequestStatus, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Down {
		return nil, &status.Error{Code: status.Unavailable, Msg: "Temporal cannot be reached", RetryAfter: time.Second}
	}
	id := "request-" + strconv.Itoa(len(q.list))
	path := job.RequestPath(id)
	r := &request{Request: *req, status: job.RequestStatus{
		ID: id, Model: req.Model, Version: req.Version, State: job.Queued, Created: time.Unix(1e9, 0).UTC(), StatusURL: path, ResultURL: path + "/result",
	}}
	if req.Callback != "" {
		r.status.Callback = &job.Delivery{URL: req.Callback, State: job.DeliveryWaiting}
	}
	q.list = append(q.list, r)
	return new(r.status), nil
}

// Run executes a request as replay does.
func (q *Requests) Run(id string, replay func(context.Context, *job.Request) *job.Reply) error {
	r, err := q.find(id)
	if err != nil {
		return err
	}
	reply := replay(context.Background(), &r.Request)
	body, err := io.ReadAll(reply.Body)
	q.mu.Lock()
	defer q.mu.Unlock()
	r.reply, r.body = reply, string(body)
	r.status.State, r.status.Code, r.status.Attempts = job.Succeeded, reply.Code, 1
	if reply.Code != http.StatusOK {
		r.status.State = job.RequestFailed
	}
	r.status.Ended = r.status.Created.Add(time.Second)
	return err
}

// Stored returns a request as it was submitted.
func (q *Requests) Stored(id string) (*job.Request, error) {
	r, err := q.find(id)
	if err != nil {
		return nil, err
	}
	return &r.Request, nil
}

func (q *Requests) find(id string) (*request, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Down {
		return nil, &status.Error{Code: status.Unavailable, Msg: "Temporal cannot be reached", RetryAfter: time.Second}
	}
	i := slices.IndexFunc(q.list, func(r *request) bool { return r.status.ID == id })
	if i < 0 {
		return nil, status.Errorf(status.NotFound, "there is no request '%s'", id)
	}
	return q.list[i], nil
}

// Show returns a request.
func (q *Requests) Show(_ context.Context, id string) (*job.RequestStatus, error) {
	r, err := q.find(id)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return new(r.status), nil
}

// Wait returns a request as it is.
func (q *Requests) Wait(ctx context.Context, id string, _ time.Duration) (*job.RequestStatus, error) {
	return q.Show(ctx, id)
}

// Result returns the response to a request that was run.
func (q *Requests) Result(_ context.Context, id string) (*job.Reply, *job.RequestStatus, error) {
	r, err := q.find(id)
	if err != nil {
		return nil, nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.reply == nil {
		return nil, new(r.status), nil
	}
	return &job.Reply{Code: r.reply.Code, Header: r.reply.Header, Size: int64(len(r.body)), Body: io.NopCloser(strings.NewReader(r.body))}, new(r.status), nil
}

// Cancel ends a request.
func (q *Requests) Cancel(_ context.Context, id string) (*job.RequestStatus, error) {
	r, err := q.find(id)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !r.status.State.Final() {
		r.status.State = job.RequestCancelled
	}
	return new(r.status), nil
}
