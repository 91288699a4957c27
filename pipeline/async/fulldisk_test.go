package async

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/diskfull/disktest"
)

func TestMain(m *testing.M) { os.Exit(disktest.Main(m)) } //nolint:forbidigo // a main function

// TestFullDisk refuses a request that the disk of the storage has no room for, keeps one whose result has none, and stores that when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disktest.Run(t, func(dir string) {
		store, ballast := filepath.Join(dir, "requests"), filepath.Join(dir, "ballast")
		r := newRig(t, func(s *Settings) { s.Store = store })
		r.work()
		_, err := r.service.Submit(t.Context(), &job.Request{Model: "echo", Body: make([]byte, 2*disktest.Size)})
		if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != diskfull.RetryAfter {
			t.Fatalf("a request beyond the disk: %v, retry after %v", err, status.RetryAfter(err))
		}
		for _, want := range []string{"the storage of asynchronous requests '" + store, "the disk of '" + store, "is full (", "free space there", "--async-dir names another one"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
		}
		if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		body := string(bytes.Repeat([]byte{'x'}, 50<<10)) // the disk has room for it once
		id := r.submit(body, "").ID
		r.await(id, "waiting for the disk", func(st *job.RequestStatus) bool { return strings.Contains(st.Reason, "is full (") })
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if st := r.await(id, "at an end", ended); st.State != job.Succeeded || r.result(id) != body {
			t.Errorf("when there was room: %+v", st)
		}
	})
}

// TestRoom refuses requests before the disk is full: clients cannot fill it. Without Temporal, since they are refused before.
func TestRoom(t *testing.T) {
	t.Parallel()
	disktest.Run(t, func(dir string) {
		store := filepath.Join(dir, "requests")
		s := &Service{records: &records{uri: store}}
		if err := s.records.room(t.Context(), 1<<10); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, disktest.Size*9/10), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.records.put(t.Context(), "20261123-010203-0123456789abcdef0123456789abcdef"+kindResponse, &storedResponse{}, make([]byte, 1<<10)); err != nil {
			t.Fatalf("a result: %v", err)
		}
		_, err := s.Submit(t.Context(), &job.Request{Model: "echo", Body: make([]byte, 4<<10)})
		if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != diskfull.RetryAfter || !strings.Contains(err.Error(), "bytes stay free: free space there") {
			t.Errorf("a request that leaves too little: %v", err)
		}
	})
}
