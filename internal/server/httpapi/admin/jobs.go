package admin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// jobsDocument describes the endpoints of jobs in OpenAPI 3.1.
//
//go:embed openapi.json
var jobsDocument []byte

// The bounds of a page of jobs or of failed rows.
const (
	defaultPage = 100
	maxPage     = 1000
)

// JobsDocument responds with the OpenAPI document of the endpoints of jobs.
func (*Service) JobsDocument(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
	transport.WriteBody(w, jobsDocument)
}

// jobs returns the service of jobs.
func (s *Service) jobs() (job.Service, error) {
	if s.Shared.Jobs == nil {
		return nil, status.Errorf(status.Unsupported, "this server has no jobs: it was started without --jobs")
	}
	return s.Shared.Jobs, nil
}

// Jobs lists jobs or, for POST, submits one.
func (s *Service) Jobs(w http.ResponseWriter, r *http.Request, p transport.Path) {
	if r.Method != http.MethodPost {
		JSON(s.listJobs)(w, r, p)
		return
	}
	s.submit(w, r, func(job.Service) (*job.Spec, error) { return s.readSpec(w, r) })
}

// RetryJob submits an ended job again. Only the rows without a result are executed.
func (s *Service) RetryJob(w http.ResponseWriter, r *http.Request, p transport.Path) {
	s.submit(w, r, func(jobs job.Service) (*job.Spec, error) {
		old, err := jobs.Show(r.Context(), p.Name)
		if err != nil {
			return nil, err
		}
		if !old.State.Final() {
			return nil, status.Errorf(status.InvalidArg, "job '%s' is %s, expected one that has ended: cancel it first, or wait", p.Name, old.State)
		}
		spec := old.Spec
		spec.ID, spec.Overwrite = "", false
		return &spec, nil
	})
}

// submit submits a job and responds 201 with it.
func (s *Service) submit(w http.ResponseWriter, r *http.Request, read func(job.Service) (*job.Spec, error)) {
	jobs, err := s.jobs()
	var spec *job.Spec
	if err == nil {
		spec, err = read(jobs)
	}
	if err == nil && (len(s.JobPaths) > 0 || !ofThisMachine(r)) {
		err = s.JobPaths.Check(spec)
	}
	var st *job.Status
	if err == nil {
		st, err = jobs.Submit(r.Context(), spec)
	}
	if err != nil {
		transport.WriteError(w, err)
		return
	}
	w.Header().Set("Location", "/v2/jobs/"+url.PathEscape(st.ID))
	w.Header()["Content-Type"] = transport.JSONType
	w.WriteHeader(http.StatusCreated)
	transport.WriteJSON(w, st)
}

// ofThisMachine reports whether the client of a request is a program of this machine, no proxy for another, and no page of
// another site in a browser. Such a page reaches this server by its address, or by a name of its own that leads here.
func ofThisMachine(r *http.Request) bool {
	if http.NewCrossOriginProtection().Check(r) != nil || !isLocal(r.Host) {
		return false
	}
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(forwarded) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// isLocal reports whether the host of a request is an address or localhost.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || host == ""
}

// readSpec reads the body of a submission. A member that Spec lacks is an error, so that no misspelt one is ignored.
func (s *Service) readSpec(w http.ResponseWriter, r *http.Request) (*job.Spec, error) {
	var in transport.Body
	in.Begin(s.Shared)
	defer in.Release()
	err := transport.RequireIdentity(r)
	if err == nil {
		err = in.Open(w, r, false)
	}
	var doc []byte
	if err == nil {
		doc, err = in.ReadJSON(nil)
	}
	if err != nil {
		s.Drain(w, r, err)
		return nil, err
	}
	var spec job.Spec
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	err = d.Decode(&spec)
	if err == nil && d.More() {
		err = errors.New("there is more behind the JSON object")
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "the job cannot be read: %w; GET /v2/jobs/openapi.json describes its members", err)
	}
	return &spec, nil
}

// jobList is a page of jobs.
type jobList struct {
	Jobs []job.Status `json:"jobs"`
	Next string       `json:"next,omitempty"` // for the query parameter "after" of the next page
}

func (s *Service) listJobs(_ http.ResponseWriter, r *http.Request, _ transport.Path) (any, error) {
	jobs, err := s.jobs()
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	all, err := jobs.List(r.Context(), r.URL.Query().Get("after"), int(limit))
	if err != nil {
		return nil, err
	}
	page := jobList{Jobs: list(all)}
	if len(all) == int(limit) {
		page.Next = all[len(all)-1].ID
	}
	return page, nil
}

// number returns a query parameter in bounds, or the default if the query does not have it.
func number(r *http.Request, name string, otherwise, least, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, status.Errorf(status.InvalidArg, "the query parameter '%s' is '%s', expected a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// Job responds with the status of a job.
func (s *Service) Job(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	jobs, err := s.jobs()
	if err != nil {
		return nil, err
	}
	return jobs.Show(r.Context(), p.Name)
}

// JobResult responds with the manifest of a completed job.
func (s *Service) JobResult(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	jobs, err := s.jobs()
	if err != nil {
		return nil, err
	}
	return jobs.Result(r.Context(), p.Name)
}

// failures is a page of failed rows.
type failures struct {
	Rows []job.FailedRow `json:"rows"`
	Next *int64          `json:"next,omitempty"` // for the query parameter "row" of the next page
}

// JobFailures responds with rows that have failed.
func (s *Service) JobFailures(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	jobs, err := s.jobs()
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	first, err := number(r, "row", 0, 0, 1<<62)
	if err != nil {
		return nil, err
	}
	rows, err := jobs.Failures(r.Context(), p.Name, first, int(limit))
	if err != nil {
		return nil, err
	}
	page := failures{Rows: list(rows)}
	if len(rows) == int(limit) {
		next := rows[len(rows)-1].Row + 1
		page.Next = &next
	}
	return page, nil
}

// PauseJob stops a job from starting more chunks.
func (s *Service) PauseJob(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	return s.changeJob(r, p, job.Service.Pause)
}

// ResumeJob continues a paused job.
func (s *Service) ResumeJob(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	return s.changeJob(r, p, job.Service.Resume)
}

// CancelJob ends a job.
func (s *Service) CancelJob(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	return s.changeJob(r, p, job.Service.Cancel)
}

// changeJob changes the state of a job and responds with its status.
func (s *Service) changeJob(r *http.Request, p transport.Path, change func(job.Service, context.Context, string) error) (any, error) {
	jobs, err := s.jobs()
	if err == nil {
		err = change(jobs, r.Context(), p.Name)
	}
	if err != nil {
		return nil, err
	}
	return jobs.Show(r.Context(), p.Name)
}
