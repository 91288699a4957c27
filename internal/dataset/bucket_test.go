package dataset_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
	"github.com/tutti-server/tutti/internal/dataset"
)

// environment looks variables up in a map.
func environment(m map[string]string) *dataset.Options {
	return &dataset.Options{Env: func(key string) string { return m[key] }}
}

// inBucket writes datasets to a bucket and reads them from it; root is the address of a folder.
func inBucket(t *testing.T, root string, o *dataset.Options) {
	t.Helper()
	ctx := t.Context()
	out, err := dataset.OpenOutput(ctx, job.Place{URI: root + "/out"}, o)
	if err != nil {
		t.Fatal(err)
	}
	objectStore(t, out)
	if err := out.Delete(ctx, "plan/1.json"); err != nil {
		t.Fatal(err)
	}
	info, r := results(t, out, "parts/0", rows(t, []string{"x", "id"}, `{"x":1,"id":1}`, `{"x":2}`), true)
	if again := copyPart(t, out, info.Path, "copy", r.Columns(), []int64{0, 1}); again.Sum != info.Sum || again.SHA256 != info.SHA256 {
		t.Errorf("copied: %+v, want %+v", again, info)
	}
	if d := cmp.Diff([]string{"copy.jsonl", "parts/0.jsonl"}, objects(t, out, "")); d != "" {
		t.Error(d)
	}
	if got := out.Name("copy.jsonl"); got != root+"/out/copy.jsonl" {
		t.Errorf("the name is %s", got)
	}
	in, err := dataset.OpenOutput(ctx, job.Place{URI: root + "/in"}, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pandas.csv", "pandas.jsonl.zst", "types.parquet", "arrays.npz", "compressed.npz"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Put(ctx, "x/"+name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Put(ctx, "x2/other.csv", []byte("a\n1\n")); err != nil {
		t.Fatal(err)
	}
	for uri, local := range map[string]string{
		"/in/x/pandas.csv": "pandas.csv", "/in/x/*.jsonl.zst": "pandas.jsonl.zst", "/in/x/types.parquet": "types.parquet", "/in/*/arr*.npz": "arrays.npz", "/in/x/compressed.npz": "compressed.npz",
	} {
		column := map[bool]string{true: "text", false: "f4"}[strings.HasPrefix(local, "pandas")]
		if strings.HasSuffix(local, ".parquet") {
			column = "matrix"
		}
		s, err := dataset.Open(ctx, job.Place{URI: root + uri}, o)
		if err != nil {
			t.Fatal(err)
		}
		want := cells(t, open(t, "testdata/"+local, "").Select(column), dataset.CutOptions{})
		for _, co := range []dataset.CutOptions{{}, {MinRows: 2, MaxRows: 2}} {
			if d := cmp.Diff(want, cells(t, s.Select(column), co)); d != "" {
				t.Errorf("%s (-want +got):\n%s", uri, d)
			}
		}
	}
	s, err := dataset.Open(ctx, job.Place{URI: root + "/in/x", Format: "csv"}, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s.Select("n"), dataset.CutOptions{}); len(got) != 7 || got[1] != "1 pandas.csv:3 10000000000" {
		t.Errorf("a folder: %q", got)
	}
	bucketFails(t, s.Select("n"), root, in, o)
}

// bucketFails checks the errors for what changed and what is not there.
func bucketFails(t *testing.T, s *dataset.Set, root string, in *dataset.Output, o *dataset.Options) {
	t.Helper()
	for _, uri := range []string{"/none", "/none.csv", "/in/x/*.txt"} {
		if _, err := dataset.Open(t.Context(), job.Place{URI: root + uri}, o); status.CodeOf(err) != status.NotFound {
			t.Errorf("%s: %v", uri, err)
		}
	}
	chunks := cut(t, s, dataset.CutOptions{MinRows: 2, MaxRows: 2})
	check := func(what string) {
		for _, err := range s.Read(t.Context(), chunks[1]) {
			if !errors.Is(err, dataset.ErrChanged) || !strings.Contains(err.Error(), "pandas.csv") {
				t.Errorf("%s: %v", what, err)
			}
			break
		}
	}
	if err := in.Put(t.Context(), "x/pandas.csv", []byte("n,text\n1,2\n")); err != nil {
		t.Fatal(err)
	}
	check("a changed object")
	if err := in.Delete(t.Context(), "x/pandas.csv"); err != nil {
		t.Fatal(err)
	}
	check("a deleted object")
}

func TestS3(t *testing.T) {
	t.Parallel()
	url := cloudtest.S3(t, "data")
	inBucket(t, "s3://"+url+"/data/deep/er", environment(nil))
	o := environment(nil)
	s, err := dataset.Open(t.Context(), job.Place{URI: "s3://" + url + "/data", Format: "npz"}, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s.Select("i1"), dataset.CutOptions{}); len(got) != 6 || got[0] != "0 deep/er/in/x/arrays.npz:0 INT8[]ff" {
		t.Errorf("a whole bucket: %q", got)
	}
	if _, err := dataset.Open(t.Context(), job.Place{URI: "s3://" + url + "/nobucket/x"}, o); status.CodeOf(err) != status.NotFound {
		t.Errorf("no bucket: %v", err)
	}
}

func TestGCS(t *testing.T) {
	t.Parallel()
	inBucket(t, "gs://data/deep", environment(map[string]string{"STORAGE_EMULATOR_HOST": cloudtest.GCS(t, "data")}))
}

func TestAzure(t *testing.T) {
	t.Parallel()
	// The account and key that every azurite has.
	url, account := cloudtest.Azurite(t), "devstoreaccount1"
	const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	file := filepath.Join(t.TempDir(), "keys.json")
	put(t, file, `{"as":{"":{"account_str":"`+account+`","account_key":"`+key+`"}}}`)
	cloudtest.MakeContainer(t, url+"/"+account, account, key, "data")
	inBucket(t, "as://"+account+"/data/deep", environment(map[string]string{"AZURE_STORAGE_SERVICE_ENDPOINT": url + "/" + account, "TRITON_CLOUD_CREDENTIAL_PATH": file}))
}

// TestRefused reads from servers that refuse, as with expired credentials, and from one that is away.
func TestRefused(t *testing.T) {
	t.Parallel()
	code, text := http.StatusForbidden, "AccessDenied"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<Error><Code>"+text+"</Code><Message>no</Message></Error>")
	}))
	defer srv.Close()
	for c, name := range map[int]string{http.StatusForbidden: "AccessDenied", http.StatusUnauthorized: "Unauthorized", http.StatusBadRequest: "ExpiredToken"} {
		code, text = c, name
		_, err := dataset.Open(t.Context(), job.Place{URI: "s3://" + srv.URL + "/b/x.csv"}, environment(nil))
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "check the credentials") {
			t.Errorf("%d: %v", c, err)
		}
		out, err := dataset.OpenOutput(t.Context(), job.Place{URI: "s3://" + srv.URL + "/b/x"}, environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Put(t.Context(), "a", nil); status.CodeOf(err) != status.Unavailable {
			t.Errorf("%d while writing: %v", c, err)
		}
	}
}

// many is a bucket with many objects, whose reads break off.
type many struct {
	cloud.Bucket
	n, listed int
}

func (b *many) List(context.Context, string) (list []cloud.Object, err error) {
	for i := range b.n {
		list = append(list, cloud.Object{Key: "d/" + strconv.Itoa(1_000_000+i) + ".txt", Size: 4, Tag: "1"})
	}
	b.listed++
	return list, nil
}

func (*many) Read(context.Context, cloud.Object, int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("ab")), nil
}

// TestBrokenConnection reads an object that ends too early: the next attempt may succeed.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	o := &dataset.Options{OpenBucket: func(context.Context, string) (cloud.Bucket, error) { return &many{n: 3}, nil }}
	s, err := dataset.Open(t.Context(), job.Place{URI: "s3://b/d"}, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Head(t.Context(), 1)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "s3://b/d/1000000.txt': the connection ended with 2 bytes missing") {
		t.Errorf("got %v", err)
	}
}
