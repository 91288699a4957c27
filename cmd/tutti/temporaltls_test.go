package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
)

func temporalCommand(ctx context.Context, program, dir, namespace string) *exec.Cmd {
	return exec.CommandContext(ctx, program, "--data-dir", dir, "--namespace", namespace)
}

// secured are the options of a server whose Temporal server demands everything.
func secured(t *testing.T, a *authority, p *temporalProxy, key string) map[string]string {
	t.Helper()
	a.sign(t, "client", time.Hour)
	writeFile(t, a.file("api-key"), []byte(key+"\n"))
	writeFile(t, a.file("codec-key"), []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))))
	return map[string]string{
		"address": p.address, "namespace": "ml", "tls-ca": a.file("ca.pem"), "tls-cert": a.file("client.pem"), "tls-key": a.file("client.key"),
		"tls-server-name": proxyName, "api-key-file": a.file("api-key"), "codec-key-file": a.file("codec-key"),
	}
}

// serveSecured starts a server with these --temporal-* options.
func serveSecured(t *testing.T, repository string, options map[string]string) addresses {
	t.Helper()
	args := append([]string{"serve", "--model-repository", repository, "--jobs=true", "--job-chunks=1"}, freePorts...)
	for name, value := range options {
		args = append(args, "--temporal-"+name, value)
	}
	_, a := startProcess(t, services, args...)
	return a
}

// refused waits until the server answers about a job with 503 and a text.
func refused(t *testing.T, address, id string, texts ...string) {
	t.Helper()
	repeated(t, "an error with "+strings.Join(texts, " and "), func(ctx context.Context) error {
		code, text, err := httpCall(ctx, http.MethodGet, "http://"+address+"/v2/jobs/"+id, nil)
		if err != nil {
			return err
		}
		for _, want := range texts {
			if code != http.StatusServiceUnavailable || !strings.Contains(string(text), want) {
				return fmt.Errorf("status %d: %s", code, text)
			}
		}
		return nil
	})
}

// TestTemporalTLS runs a job through a Temporal server that demands TLS with a client certificate and an API key, in a namespace of its
// own. During the job the API key expires, and then the client certificate: the state says so, and the job goes on by itself when
// the files have been renewed. What passes is encrypted with the codec's key.
func TestTemporalTLS(t *testing.T) {
	t.Parallel()
	const rows = 1000
	ca := newAuthority(t)
	proxy := newTemporalProxy(t, ca, startTemporal(t, "ml"), "first")
	repository, spec := identities(t, "line", rows)
	a := serveSecured(t, repository, secured(t, ca, proxy, "first"))
	submitJob(t, a.http, spec)
	reached(t, a.http, spec.ID, 2)

	proxy.change(func(p *temporalProxy) { p.key = "second" })
	refused(t, a.http, spec.ID, "the API key has expired", "--temporal-api-key-file")
	writeFile(t, ca.file("api-key"), []byte("second\n"))
	before := reached(t, a.http, spec.ID, 4)

	proxy.change(func(p *temporalProxy) { p.ahead = 2 * time.Hour })
	refused(t, a.http, spec.ID, "tls: expired certificate", "--temporal-tls-cert")
	ca.sign(t, "client", 12*time.Hour)
	st := reached(t, a.http, spec.ID, 0)
	if st.State != job.Completed || st.Rows.Done != rows || st.Rows.Failed != 0 || before.State == job.Completed {
		t.Errorf("the job is %+v after %+v, expected %d completed rows", st, before, rows)
	}
	for _, secret := range []string{spec.Input.URI, filepath.Base(spec.Output.URI) + "/"} {
		if proxy.saw(secret) {
			t.Errorf("Temporal has seen %q, expected what the codec's key encrypts", secret)
		}
	}
	if !proxy.saw("binary/encrypted") || !proxy.saw(spec.ID) {
		t.Error("Temporal has seen no encrypted payload, or not the id of the job")
	}
}

// TestTemporalRefuses checks what a client of jobs is told when the Temporal server is there and refuses this server.
func TestTemporalRefuses(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	proxy := newTemporalProxy(t, ca, startTemporal(t, "ml"), "first")
	good := secured(t, ca, proxy, "first")
	other.sign(t, "client", time.Hour)
	writeFile(t, other.file("wrong-key"), []byte("another"))
	_, spec := identities(t, "line", 10)
	for name, c := range map[string]struct {
		change map[string]string // an empty value leaves the option out
		want   []string
	}{
		"authority":             {map[string]string{"tls-ca": other.file("ca.pem")}, []string{"certificate signed by unknown authority", "--temporal-tls-ca"}},
		"name":                  {map[string]string{"tls-server-name": ""}, []string{"127.0.0.1", "--temporal-tls-server-name"}},
		"certificate":           {map[string]string{"tls-cert": "", "tls-key": ""}, []string{"tls: certificate required", "--temporal-tls-cert"}},
		"another's certificate": {map[string]string{"tls-cert": other.file("client.pem"), "tls-key": other.file("client.key")}, []string{"tls: unknown certificate authority", "--temporal-tls-cert"}},
		"key":                   {map[string]string{"api-key-file": other.file("wrong-key")}, []string{"the API key has expired", "--temporal-api-key-file"}},
		"no key":                {map[string]string{"api-key-file": ""}, []string{"the API key has expired", "--temporal-api-key-file"}},
		"namespace":             {map[string]string{"namespace": "missing"}, []string{"Temporal has no namespace 'missing'", "--temporal-namespace"}},
		"clear text": {
			map[string]string{"tls-ca": "", "tls-cert": "", "tls-key": "", "tls-server-name": "", "api-key-file": ""},
			[]string{"error reading server preface", "--temporal-tls"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := map[string]string{}
			for key, value := range good {
				if changed, ok := c.change[key]; ok {
					value = changed
				}
				if value != "" {
					options[key] = value
				}
			}
			a := serveSecured(t, t.TempDir(), options)
			refused(t, a.http, "one", c.want...)
			if name == "another's certificate" { // whether the reason arrives before the connection ends depends on the system
				return
			}
			code, text, err := httpCall(t.Context(), http.MethodPost, "http://"+a.http+"/v2/jobs", spec)
			var body struct{ Error string }
			if err != nil || code != http.StatusServiceUnavailable || json.Unmarshal(text, &body) != nil || !strings.Contains(body.Error, c.want[len(c.want)-1]) {
				t.Errorf("a job: status %d, %s, %v; expected 503 with %q", code, text, err, c.want)
			}
		})
	}
}
