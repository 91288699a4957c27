package cloud_test

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // as buckets do
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
)

// env looks variables up in a map.
func env(m map[string]string) *cloud.Options {
	return &cloud.Options{Env: func(key string) string { return m[key] }}
}

// contract writes, lists, reads and deletes in a bucket.
func contract(t *testing.T, b cloud.Bucket) {
	t.Helper()
	ctx, big := t.Context(), bytes.Repeat([]byte("0123456789"), 200_000)
	for key, data := range map[string][]byte{"m/config.pbtxt": []byte("text"), "m/1/model.bin": big, "other/1/x y+z%": []byte("odd")} {
		if err := b.Write(ctx, key, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range list {
		keys = append(keys, o.Key)
	}
	if d := cmp.Diff([]string{"m/1/model.bin", "m/config.pbtxt", "other/1/x y+z%"}, keys); d != "" {
		t.Fatalf("keys (-want +got):\n%s", d)
	}
	if list[0].Size != int64(len(big)) || list[0].Tag == "" {
		t.Errorf("object %+v", list[0])
	}
	parts(t, b, list[0], big)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file+".part", big[:777_777], 0o600); err != nil {
		t.Fatal(err)
	}
	var fetched int64
	if err := cloud.Copy(ctx, b, list[0], file, file+".part", func(n int64, f bool) {
		if f {
			fetched += n
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, big) || fetched != int64(len(big)-777_777) {
		t.Errorf("%d bytes, %d fetched, %v", len(got), fetched, err)
	}
	stale := list[1]
	if err := b.Write(ctx, "m/config.pbtxt", strings.NewReader("else"), 4); err != nil {
		t.Fatal(err)
	}
	if body, err := b.Read(ctx, stale, 0); err == nil {
		_ = body.Close()
		t.Error("an object that changed is read as the listed one")
	} else if !errors.Is(err, cloud.ErrChanged) {
		t.Errorf("an object that changed: %v", err)
	}
	for range 2 {
		if err := b.Delete(ctx, "m/config.pbtxt"); err != nil {
			t.Error(err)
		}
	}
	if list, err := b.List(ctx, "m/"); err != nil || len(list) != 1 {
		t.Errorf("after deleting: %v, %v", list, err)
	}
}

// parts walks over a bucket of three objects, and reads ranges of the one with the content big.
func parts(t *testing.T, b cloud.Bucket, o cloud.Object, big []byte) {
	t.Helper()
	n := 0
	for o, err := range cloud.Walk(t.Context(), b, "") {
		if err != nil || o.Key == "" {
			t.Fatal(o, err)
		}
		n++
	}
	for range cloud.Walk(t.Context(), b, "m/") {
		n++
		break
	}
	if n != 4 {
		t.Errorf("%d objects, want three and one", n)
	}
	for _, r := range [][2]int64{{0, 10}, {999_999, 1}, {1_999_990, -1}, {5, 100}} {
		body, err := cloud.ReadRange(t.Context(), b, o, r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		want := big[r[0]:]
		if r[1] >= 0 {
			want = want[:r[1]]
		}
		if err = errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes from %d on: got %d, %v", r[1], r[0], len(got), err)
		}
	}
	if got, err := cloud.Stat(t.Context(), b, o.Key); err != nil || got.Tag != o.Tag {
		t.Errorf("Stat: %+v, %v", got, err)
	}
	if _, err := cloud.Stat(t.Context(), b, "m"); status.CodeOf(err) != status.NotFound {
		t.Errorf("Stat of a folder: %v", err)
	}
}

func TestS3(t *testing.T) {
	t.Parallel()
	url := cloudtest.S3(t, "models")
	b, err := cloud.Open(t.Context(), "s3://"+url+"/models/deep/repo", env(nil))
	if err != nil {
		t.Fatal(err)
	}
	contract(t, b)
	none, err := cloud.Open(t.Context(), "s3://"+url+"/nothing", env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.List(t.Context(), ""); status.CodeOf(err) != status.NotFound || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("a bucket that is not there: %v", err)
	}
}

func TestGCS(t *testing.T) {
	t.Parallel()
	b, err := cloud.Open(t.Context(), "gs://models/repo", env(map[string]string{"STORAGE_EMULATOR_HOST": cloudtest.GCS(t, "models")}))
	if err != nil {
		t.Fatal(err)
	}
	contract(t, b)
}

func TestAzure(t *testing.T) {
	t.Parallel()
	// The account and key that every azurite has.
	url, account := cloudtest.Azurite(t), "devstoreaccount1"
	const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, []byte(`{"as":{"":{"account_str":"`+account+`","account_key":"`+key+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o := env(map[string]string{"AZURE_STORAGE_SERVICE_ENDPOINT": url + "/" + account, "TRITON_CLOUD_CREDENTIAL_PATH": file})
	cloudtest.MakeContainer(t, url+"/"+account, account, key, "models")
	b, err := cloud.Open(t.Context(), "as://"+account+"/models/repo", o)
	if err != nil {
		t.Fatal(err)
	}
	contract(t, b)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"s3://":            "'s3://' names no bucket, expected s3://BUCKET/PATH",
		"s3://http://h:1/": "'s3://http://h:1/' names no bucket, expected s3://BUCKET/PATH",
		"as://account":     "'as://account' is no address of a container, expected as://ACCOUNT/CONTAINER/PATH",
		"hdfs://x/y":       "unsupported: 'hdfs://x/y' has an unknown scheme, expected s3://, gs:// or as://",
	} {
		if _, err := cloud.Open(t.Context(), address, env(nil)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
	_, err := cloud.Open(t.Context(), "s3://b", env(map[string]string{"TRITON_CLOUD_CREDENTIAL_PATH": keys}))
	if err == nil || !strings.HasPrefix(err.Error(), "TRITON_CLOUD_CREDENTIAL_PATH: '"+keys+"' cannot be read: ") {
		t.Errorf("a broken credential file: %v", err)
	}
}

// TestForbidden checks what is told of a server that refuses.
func TestForbidden(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
	}))
	defer srv.Close()
	b, err := cloud.Open(t.Context(), "s3://"+srv.URL+"/b", env(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := "listing s3://" + srv.URL + "/b: status 403 Forbidden: AccessDenied no"
	if _, err = b.List(t.Context(), ""); err == nil || err.Error() != want || !errors.Is(err, cloud.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// torn is a bucket with one object, which breaks off after some bytes each time.
type torn struct {
	cloud.Bucket
	data  []byte
	after int
	reads int
}

func (b *torn) Read(_ context.Context, _ cloud.Object, offset int64) (io.ReadCloser, error) {
	b.reads++
	rest := b.data[offset:]
	end := min(len(rest), b.after)
	return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:end]), broken{end == len(rest)})), nil
}

// broken is where a connection ends.
type broken struct{ whole bool }

func (b broken) Read([]byte) (int, error) {
	if b.whole {
		return 0, io.EOF
	}
	return 0, errors.New("connection reset")
}

func TestCopyGoesOn(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("abc"), 1000)
	sum := md5.Sum(data) //nolint:gosec // as buckets do
	file := filepath.Join(t.TempDir(), "f")
	b := &torn{data: data, after: 1000}
	o := cloud.Object{Key: "k", Size: 3000, MD5: sum[:]}
	if err := cloud.Copy(t.Context(), b, o, file, file+".part", func(int64, bool) {}); err != nil || b.reads != 3 {
		t.Fatalf("%v after %d reads", err, b.reads)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	o.MD5 = make([]byte, 16)
	err := cloud.Copy(t.Context(), b, o, file+"2", file+"2.part", func(int64, bool) {})
	if err == nil || !strings.HasPrefix(err.Error(), "object 'k' has MD5 ") {
		t.Errorf("another content: %v", err)
	}
	stuck := &torn{data: data}
	err = cloud.Copy(t.Context(), stuck, o, file+"3", file+"3.part", func(int64, bool) {})
	if err == nil || err.Error() != "reading object 'k' ended after 0 of 3000 bytes: connection reset" {
		t.Errorf("nothing comes: %v", err)
	}
}

// TestEncrypted reads an object whose ETag looks like an MD5, as of those that a key
// service encrypts.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	for header, fits := range map[string]bool{"aws:kms": true, "AES256": false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"`+strings.Repeat("0", 32)+`"`)
			w.Header().Set("X-Amz-Server-Side-Encryption", header)
			_, _ = io.WriteString(w, "hello")
		}))
		t.Cleanup(srv.Close)
		b, err := cloud.Open(t.Context(), "s3://"+srv.URL+"/b", env(nil))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "f")
		o := cloud.Object{Key: "k", Size: 5, Tag: strings.Repeat("0", 32), MD5: make([]byte, 16)}
		if err := cloud.Copy(t.Context(), b, o, file, file+".part", func(int64, bool) {}); (err == nil) != fits {
			t.Errorf("%s: %v", header, err)
		}
	}
}

// drip is a bucket that gives a byte a read.
type drip struct{ torn }

func (b *drip) Read(ctx context.Context, o cloud.Object, offset int64) (io.ReadCloser, error) {
	b.after = 1
	return b.torn.Read(ctx, o, offset)
}

// TestCopyGivesUp has a server that hardly gives anything end a copy.
func TestCopyGivesUp(t *testing.T) {
	t.Parallel()
	b := &drip{torn{data: make([]byte, 1<<20)}}
	file := filepath.Join(t.TempDir(), "f")
	err := cloud.Copy(t.Context(), b, cloud.Object{Key: "k", Size: 1 << 20}, file, file+".part", func(int64, bool) {})
	if err == nil || err.Error() != "reading object 'k' ended after 4 of 1048576 bytes: connection reset" {
		t.Errorf("got %v after %d reads", err, b.reads)
	}
}

// TestIdleConnectionClosed checks that a server which closes its idle connections, also with a reset, costs a bucket nothing: the next
// request is answered, and no signal (SIGPIPE) ends the process.
func TestIdleConnectionClosed(t *testing.T) {
	t.Parallel()
	idle := make(chan net.Conn, 16)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>`)
	}))
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			idle <- c
		}
	}
	srv.Start()
	defer srv.Close()
	b, err := cloud.Open(t.Context(), "s3://"+srv.URL+"/b", env(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if list, err := b.List(t.Context(), ""); err != nil || len(list) != 0 {
			t.Fatalf("%v, %v", list, err)
		}
		c := (<-idle).(*net.TCPConn)
		if err := errors.Join(c.SetLinger(0), c.Close()); err != nil { // a reset
			t.Fatal(err)
		}
	}
}
