package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// requests returns the service of asynchronous requests.
func (s *Service) requests() (job.Requests, error) {
	if s.Requests == nil {
		return nil, status.Errorf(status.Unsupported, "this server has no asynchronous requests: it was started without --jobs")
	}
	return s.Requests, nil
}

// Request responds with the status of an asynchronous request. For DELETE, it cancels a request that has not ended, and
// removes the result of one that has.
func (s *Service) Request(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	requests, err := s.requests()
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodDelete {
		return requests.Cancel(r.Context(), p.Name)
	}
	return requests.Show(r.Context(), p.Name)
}

// RequestResult responds with the result of an asynchronous request: the response that the request had got without Prefer. It
// responds 409 while there is none yet, and 410 if there will be none.
func (s *Service) RequestResult(w http.ResponseWriter, r *http.Request, p transport.Path) {
	requests, err := s.requests()
	var reply *job.Reply
	var st *job.RequestStatus
	if err == nil {
		reply, st, err = requests.Result(r.Context(), p.Name)
	}
	switch {
	case err != nil:
		transport.WriteError(w, err)
	case reply != nil:
		s.WriteReply(w, r, reply)
	case st.State == job.RequestCancelled:
		transport.WriteErrorAs(w, http.StatusGone, status.Errorf(status.Cancelled, "request '%s' was cancelled and has no result", p.Name))
	case st.State.Final():
		transport.WriteErrorAs(w, http.StatusInternalServerError, status.Errorf(status.Internal, "request '%s' has no result: %s", p.Name, st.Reason))
	default:
		transport.WriteErrorAs(w, http.StatusConflict, &status.Error{
			Code: status.Unavailable, RetryAfter: time.Second,
			Msg: fmt.Sprintf("request '%s' is %s, expected one that has ended; its status is at %s", p.Name, st.State, st.StatusURL),
		})
	}
}
