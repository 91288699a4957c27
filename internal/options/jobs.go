package options

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/temporald"
)

// Jobs configures durable jobs.
type Jobs struct {
	Enabled bool
	// DataDir is the folder of the dashboard's history and of the Temporal server of this machine. Without the flag it is empty without jobs,
	// and without a home directory.
	DataDir string
	Queue   string   // the prefix of the names of task queues
	Chunks  int      // the number of chunks of one model that are executed at a time
	Paths   []string // the places that jobs may use; none: any, for programs of this machine
	Async   Async
	// Temporal is the Temporal server. DataDir and Log are not set.
	Temporal temporald.Settings
}

// Async configures asynchronous inference requests, which servers with jobs have.
type Async struct {
	Dir    string        // a folder or an address in a bucket; empty without jobs and without DataDir
	Keep   time.Duration // that a request may wait, and that its result is kept then
	Hosts  []string      // where callbacks may go; none: requests with a callback are refused
	Secret string        // the file with the secrets that sign callbacks
}

const (
	jobsGroup   = "Jobs"
	flagJobs    = "jobs"
	flagDataDir = "data-dir"
)

func (o *Options) jobFlags() []Flag {
	j, t := &o.Jobs, &o.Jobs.Temporal
	list := grouped(jobsGroup,
		onOff(flagJobs, &j.Enabled, no, "Run durable jobs over datasets, and serve /v2/jobs"),
		word(flagDataDir, argFolder, &j.DataDir, "", "Folder for the history of the dashboard, and for the Temporal server that --jobs starts without --temporal-address. Without it the dashboard's history ends with the server, and the folder for jobs is in the user's state directory"),
		words("job-path", argFolder, &j.Paths, "Folder or address in a bucket that jobs may read and write; without one, programs of this machine may name any, and others none"),
		word("async-dir", argFolder, &j.Async.Dir, "", "Folder or address in a bucket for asynchronous requests and their results; by default 'requests' below --data-dir"),
		span("async-result-time", argSeconds, &j.Async.Keep, "86400", 1, "Seconds that an asynchronous request may wait for its execution, and that its result is kept then"),
		words("callback-host", "host[:port]", &j.Async.Hosts, "Host that callbacks of asynchronous requests may go to: a name as hooks.example.com or *.example.com, or an address or network, which need not be public then; without one, requests with a callback are refused"),
		word("callback-secret-file", argFile, &j.Async.Secret, "", "File with the secrets that sign callbacks, one per line in base64; read for each callback"),
		word("temporal-program", argFile, &t.Program, "", "The program tutti-temporal; by default the one beside this program, or else in PATH"),
		word("temporal-address", "host:port", &t.Address, "", "A Temporal server, in place of one that is started"),
		word("temporal-namespace", "name", &t.Namespace, temporald.DefaultNamespace, "Namespace of the jobs at the Temporal server"),
		word("temporal-task-queue", "name", &j.Queue, "tutti", "Prefix of the task queues, which separates the jobs of several installations"),
		onOff("temporal-tls", &t.TLS.Enabled, no, "Encrypt the connection to the Temporal server; the options below and an API key imply it"),
		word("temporal-tls-ca", argFile, &t.TLS.CA, "", "PEM file of the authorities that sign the Temporal server's certificate; by default those of the system"),
		word("temporal-tls-cert", argFile, &t.TLS.Cert, "", "PEM file of the certificate to present to the Temporal server, read for each connection"),
		word("temporal-tls-key", argFile, &t.TLS.Key, "", "PEM file of its key"),
		word("temporal-tls-server-name", "name", &t.TLS.ServerName, "", "Name in the Temporal server's certificate, if it is not that of the address"),
		word("temporal-api-key-file", argFile, &t.APIKeyFile, "", "File with the API key of the Temporal server, read again when it changes"),
		word("temporal-codec-key-file", argFile, &t.CodecKeyFile, "", "File with keys that encrypt what the Temporal server stores: lines of 16, 24 or 32 bytes in base64 or hexadecimal; the first encrypts, all decrypt"),
		number("job-chunks", argNumber, &j.Chunks, "4", 1, math.MaxInt32, "Chunks of one model that this process executes at a time"),
	)
	for i := range list {
		list[i].Own = true
	}
	return list
}

// unusedJobs adds a notice for each flag of jobs that was given, with another value than its default, to a server without them.
func (o *Options) unusedJobs(flags []Flag, sources []given) {
	for i := range flags {
		f := &flags[i]
		other := func(v value) bool { return v.text != f.Default }
		if f.Group == jobsGroup && f.Name != flagJobs && (f.Name != flagDataDir || !o.Dashboard.Enabled) && slices.ContainsFunc(nearestSource(sources, f.Name), other) {
			o.notice("--"+f.Name, "without effect: --jobs is off")
		}
	}
}

// finishJobs sets the default of --data-dir for jobs. environ has the state directory of the user.
func (o *Options) finishJobs(environ []string) error {
	if !o.Jobs.Enabled {
		return nil
	}
	if o.Jobs.DataDir == "" {
		o.Jobs.findDataDir(environ)
	}
	if o.Jobs.Async.Dir == "" && o.Jobs.DataDir != "" {
		o.Jobs.Async.Dir = filepath.Join(o.Jobs.DataDir, "requests")
	}
	return nil
}

func (j *Jobs) findDataDir(environ []string) {
	env := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	home := cmp.Or(env["HOME"], homeDir())
	if state := env["XDG_STATE_HOME"]; filepath.IsAbs(state) {
		j.DataDir = filepath.Join(state, "tutti")
	} else if home != "" {
		j.DataDir = filepath.Join(home, ".local", "state", "tutti")
	}
}

// homeDir returns the home directory of the user, empty if it is unknown.
func homeDir() string {
	dir, _ := os.UserHomeDir()
	return dir
}
