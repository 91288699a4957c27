package main

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
)

// TestAsyncInBucket sends asynchronous requests with compressed bodies to a server whose storage is a bucket, until a worker of
// another process has executed some. Each has its result, from the bucket.
func TestAsyncInBucket(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), "s3://"+cloudtest.S3(t, "requests")+"/requests"
	_, url := asyncServer(t, dir, "--async-dir", store)
	_, at := startProcess(t, 1, "worker", "--model-repository", asyncModels(t), "--data-dir", dir, "--temporal-program", temporalProgram(t),
		"--async-dir", store, "--metrics-address=127.0.0.1", "--metrics-port=0")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(asyncBody)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want, wantText := asyncCall(t.Context(), t, http.MethodPost, url+"/v2/models/quick/infer", packed.String(), "Content-Encoding", "gzip")
	if want.StatusCode != http.StatusOK {
		t.Fatalf("without Prefer: status %d, %s", want.StatusCode, wantText)
	}
	executed := regexp.MustCompile(`(?m)^nv_inference_request_success\{model="quick",version="1"\} [1-9]`)
	var sent []job.RequestStatus
	for most := 1000; !executed.MatchString(metricsOf(t, at)); {
		if len(sent) >= most {
			t.Fatalf("the worker has executed none of %d requests", most)
		}
		for range 4 {
			sent = append(sent, asyncSubmit(t, url, "quick", packed.String(), "Content-Encoding", "gzip"))
		}
	}
	for _, st := range sent {
		if now := asyncEnded(t, url, st); now.State != job.Succeeded || now.Code != http.StatusOK {
			t.Errorf("%+v", now)
		}
		resp, text := asyncCall(t.Context(), t, http.MethodGet, url+st.ResultURL, "")
		sameResult(t, "the result from the bucket", resp, want, text, wantText)
	}
	bucket, err := cloud.Open(t.Context(), store, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	list, err := bucket.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	responses := 0
	for _, o := range list {
		if strings.HasSuffix(o.Key, ".response") {
			responses++
		}
	}
	if responses != len(sent) {
		t.Errorf("%d objects, %d responses of %d requests: %v", len(list), responses, len(sent), list)
	}
	t.Logf("%d requests", len(sent))
}
