package tutti

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/temporald"
	"github.com/tutti-server/tutti/pipeline/async"
	"github.com/tutti-server/tutti/pipeline/durable"
)

// jobs has what a server needs for durable jobs: the connection to Temporal, the service for clients and the worker that executes
// chunks with the models of the server. Temporal may be away at any time: jobs wait, and online requests are served.
type jobs struct {
	conn    *temporald.Connection
	service *durable.Service
	worker  *durable.Worker
	later   *async.Service     // of single requests; nil without a folder for them
	single  *async.Worker      // as later
	stop    context.CancelFunc // nil until the workers run
	done    chan error         // has the result of the workers
}

// openJobs connects to Temporal, and starts a Temporal server unless the options name one.
func (s *Server) openJobs(catalog *catalog) (err error) {
	if !s.o.Jobs.Enabled {
		return nil
	}
	set := s.o.Jobs.Temporal
	set.DataDir, set.Log = s.o.Jobs.DataDir, s.log
	j := &jobs{done: make(chan error, 1)}
	if j.conn, err = temporald.Open(set); err != nil {
		return err
	}
	s.jobs = j
	settings := durable.Settings{
		Client: j.conn.Client(), Codec: j.conn.Codec(), Inferer: s.repo, Catalog: catalog, Fingerprint: s.repo.Fingerprint, Background: s.repo.Background(), OnGPU: s.repo.OnGPU, Failure: j.conn.Failure,
		Queue: s.o.Jobs.Queue, Chunks: s.o.Jobs.Chunks, Log: s.log,
	}
	j.service = durable.New(settings)
	if j.worker, err = durable.NewWorker(settings); err != nil {
		return err
	}
	return s.openAsync(j, catalog)
}

// openAsync makes what executes single requests later, by the HTTP service or, for a worker without endpoints, by one that does
// not listen.
func (s *Server) openAsync(j *jobs, catalog *catalog) (err error) {
	o := &s.o.Jobs.Async
	set := async.Settings{
		Client: j.conn.Client(), Store: o.Dir, Catalog: catalog, Queue: s.o.Jobs.Queue, Keep: o.Keep, Failure: j.conn.Failure, Log: s.log,
		Execute: func(ctx context.Context, req *job.Request) *job.Reply { return s.replayer.Replay(ctx, req) },
	}
	if len(o.Hosts) > 0 {
		if set.Callbacks, err = async.NewCallbacks(o.Hosts, o.Secret); err != nil {
			return err
		}
	} else if o.Secret != "" {
		return status.Errorf(status.InvalidArg, "--callback-secret-file has no effect without --callback-host, which lists the hosts that callbacks may go to")
	}
	if o.Dir == "" {
		s.log.Warn("Asynchronous requests are not available: there is no home directory; --async-dir names a folder for them.")
		return nil
	}
	if j.later, err = async.New(set); err == nil {
		j.single, err = async.NewWorker(set)
	}
	return err
}

// run runs the workers until ctx is done.
func (j *jobs) run(ctx context.Context) error {
	if j.single == nil {
		return j.worker.Run(ctx)
	}
	single := make(chan error, 1)
	go func() { single <- j.single.Run(ctx) }()
	return errors.Join(j.worker.Run(ctx), <-single)
}

// start runs the workers.
func (j *jobs) start() {
	if j == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	j.stop = stop
	go func() { j.done <- j.run(ctx) }()
}

// leave stops the worker: it takes no more chunks, and those in execution end or, when ctx is done, are abandoned.
// Temporal gives them to another worker then.
func (j *jobs) leave(ctx context.Context) error {
	if j == nil || j.stop == nil {
		return nil
	}
	j.stop()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// close closes the connection, and ends a Temporal server that this process started.
func (j *jobs) close(ctx context.Context, journal *slog.Logger) error {
	if j == nil {
		return nil
	}
	err := j.conn.Close(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		journal.WarnContext(ctx, "the end of jobs", slog.Any("error", err))
		return nil
	}
	return err
}

// onlyJobs changes the options of a server with jobs to those of a worker, which has no endpoints for inference.
func onlyJobs(o *options.Options) {
	o.HTTP.Enabled, o.GRPC.Enabled = false, false
}

// serveHealth adds the health endpoints of the HTTP service to that of metrics, for a worker, which has no other.
func (e *metricsService) serveHealth(live, ready func() bool) {
	mux := e.http.Handler.(*http.ServeMux) //nolint:errcheck,forcetypeassert // see newMetricsService
	for path, ok := range map[string]func() bool{"/v2/health/live": live, "/v2/health/ready": ready} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if !ok() {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
	}
}
