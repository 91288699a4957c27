package options_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/temporald"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	plain := options.Jobs{Queue: "tutti", Chunks: 4, Async: options.Async{Keep: 24 * time.Hour}, Temporal: temporald.Settings{Namespace: "default"}}
	with := func(change func(j *options.Jobs)) options.Jobs {
		j := plain
		change(&j)
		return j
	}
	home := []string{"HOME=/home/me"}
	for _, tt := range []struct {
		args, env []string
		want      options.Jobs
	}{
		{nil, home, plain},
		{[]string{"--jobs=true"}, []string{"HOME=/home/me", "XDG_STATE_HOME=/state"}, with(func(j *options.Jobs) {
			j.Enabled, j.DataDir, j.Async.Dir = true, "/state/tutti", "/state/tutti/requests"
		})},
		{[]string{"--jobs=true"}, []string{"HOME=/home/me", "XDG_STATE_HOME=relative"}, with(func(j *options.Jobs) {
			j.Enabled, j.DataDir, j.Async.Dir = true, "/home/me/.local/state/tutti", "/home/me/.local/state/tutti/requests"
		})},
		{nil, append(home, "TUTTI_JOBS=true"), with(func(j *options.Jobs) {
			j.Enabled, j.DataDir, j.Async.Dir = true, "/home/me/.local/state/tutti", "/home/me/.local/state/tutti/requests"
		})},
		{[]string{"--jobs=true", "--data-dir", "/d", "--job-chunks=9", "--job-path=/data", "--job-path=s3://b"}, home, with(func(j *options.Jobs) {
			j.Enabled, j.DataDir, j.Chunks, j.Paths, j.Async.Dir = true, "/d", 9, []string{"/data", "s3://b"}, "/d/requests"
		})},
		{[]string{"--jobs=true", "--data-dir", "/d", "--async-dir=s3://b/r", "--async-result-time=60", "--callback-host=a.example", "--callback-host=10.0.0.0/8", "--callback-secret-file=/s"}, home, with(func(j *options.Jobs) {
			j.Enabled, j.DataDir = true, "/d"
			j.Async = options.Async{Dir: "s3://b/r", Keep: time.Minute, Hosts: []string{"a.example", "10.0.0.0/8"}, Secret: "/s"}
		})},
		{
			[]string{
				"--temporal-address", "t:7233", "--temporal-namespace=n", "--temporal-task-queue=q", "--temporal-program=/p", "--temporal-tls=true", "--temporal-tls-ca=ca",
				"--temporal-tls-cert=cert", "--temporal-tls-key=key", "--temporal-tls-server-name=name", "--temporal-api-key-file=api", "--temporal-codec-key-file=codec",
			}, home, with(func(j *options.Jobs) {
				j.Queue = "q"
				j.Temporal = temporald.Settings{
					Address: "t:7233", Namespace: "n", Program: "/p", APIKeyFile: "api", CodecKeyFile: "codec",
					TLS: temporald.TLS{Enabled: true, CA: "ca", Cert: "cert", Key: "key", ServerName: "name"},
				}
			}),
		},
	} {
		o, err := options.Parse(append([]string{"--model-repository=m"}, tt.args...), tt.env)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, o.Jobs); diff != "" {
			t.Errorf("%q %q (-want +got):\n%s", tt.args, tt.env, diff)
		}
	}
}

// TestUnusedJobFlags checks that the server says which flags have no effect without --jobs, wherever they come from.
func TestUnusedJobFlags(t *testing.T) {
	t.Parallel()
	args := []string{"--model-repository=m", "--temporal-address=t:7233"}
	for _, tt := range []struct {
		args, env []string
		want      []options.Notice
	}{
		{args, []string{"HOME=/h", "TUTTI_JOB_PATH=/data"}, []options.Notice{
			{Option: "--job-path", Text: "without effect: --jobs is off"}, {Option: "--temporal-address", Text: "without effect: --jobs is off"},
		}},
		{append(args[:1:1], "--data-dir=/d"), []string{"HOME=/h"}, nil}, // the dashboard has a use for it
		{append(args[:1:1], "--data-dir=/d", "--dashboard=false"), []string{"HOME=/h"}, []options.Notice{{Option: "--data-dir", Text: "without effect: --jobs is off"}}},
		{append(args, "--jobs"), []string{"HOME=/h", "TUTTI_JOB_PATH=/data"}, nil},
		{args[:1], []string{"HOME=/h"}, nil},
	} {
		o, err := options.Parse(tt.args, tt.env)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, o.Notices); diff != "" {
			t.Errorf("%v, %v (-want +got):\n%s", tt.args, tt.env, diff)
		}
	}
}
