package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
)

// The functions whose names begin with page are the snippets of docs/client.md: their bodies. http and grpc are addresses of a server.

func pageInfer(ctx context.Context, w io.Writer, _ string) error {
	c, err := client.Dial(os.Getenv("TUTTI_URL")) // http://HOST:PORT or grpc://HOST:PORT
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.Infer(ctx, &client.Request{
		Model:  "rank",
		Inputs: []client.Tensor{client.Of("scores", []int64{1, 3}, float32(0.5), 2, 1)}, // one row of three numbers
	})
	if err != nil {
		return err
	}
	labels, err := resp.Output("labels").Strings()
	if err != nil {
		return err
	}
	values, err := client.Values[float32](resp.Output("values"))
	if err != nil {
		return err
	}
	fmt.Fprintln(w, labels, values)
	return nil
}

func pageErrors(ctx context.Context, w io.Writer, url string) error {
	c, err := client.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Infer(ctx, &client.Request{Model: "rank", Inputs: []client.Tensor{client.Of("scores", []int64{1, 3}, int32(1), 2, 3)}})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Fprintln(w, refused.Status)
		fmt.Fprintln(w, refused.Text)
		return nil
	}
	return err // not the server's word: for example, a lost connection
}

func pageOptions(ctx context.Context, w io.Writer, url string) error {
	c, err := client.DialWith(url, &client.Options{
		Header: http.Header{"Authorization": {"Bearer secret"}},       // sent with every request
		Retry:  &client.Retry{Attempts: 3, MaxWait: 10 * time.Second}, // off without it
	})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // of all attempts together; cancels the request at the server
	defer cancel()
	ready, err := c.ModelReady(ctx, "rank", "")
	fmt.Fprintln(w, ready)
	return err
}

func pageGenerate(ctx context.Context, w io.Writer, url string) error {
	c := client.NewHTTP(url, nil)
	defer c.Close()
	req := &client.GenerateRequest{Model: "repeat", Inputs: map[string]any{"IN": []int{4, 5, 6}, "DELAY": []int{0, 0, 0}, "WAIT": 0}}
	return c.GenerateStream(ctx, req, func(g *client.Generated) error {
		var out int
		if err := g.Decode("OUT", &out); err != nil {
			return err
		}
		fmt.Fprintln(w, out)
		return nil // an error ends the stream
	})
}

func pageSequence(ctx context.Context, w io.Writer, grpc string) error {
	c, err := client.NewGRPC(grpc, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.OpenStream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	for i, n := range []int32{1, 2, 3} {
		err := s.Send(&client.Request{
			Model:    "sum",
			ID:       strconv.Itoa(i),
			Inputs:   []client.Tensor{client.Of("INPUT", []int64{1, 1}, n)},
			Sequence: &client.Sequence{ID: 42, Start: i == 0, End: i == 2},
		})
		if err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, err := client.Values[int32](resp.Output("OUTPUT"))
		if err != nil {
			return err
		}
		fmt.Fprintln(w, resp.ID, sum)
	}
}

func pageShared(ctx context.Context, w io.Writer, url string) error {
	c, err := client.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := client.CreateShared(fmt.Sprintf("/page-%d", os.Getpid()), 4096)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := c.RegisterSystem(ctx, "page", m.Key, 0, 4096); err != nil {
		return err
	}
	defer c.UnregisterSystem(ctx, "page")

	in := client.Of("scores", []int64{1, 3}, float32(0.5), 2, 1)
	n := copy(m.Bytes, in.Data)
	result := client.Region{Name: "page", Offset: 1024, Size: 8} // two numbers of FP32
	resp, err := c.Infer(ctx, &client.Request{
		Model:   "rank",
		Inputs:  []client.Tensor{{Name: "scores", DType: tensor.FP32, Shape: in.Shape, Region: &client.Region{Name: "page", Size: uint64(n)}}},
		Outputs: []string{"values"},
		Regions: map[string]client.Region{"values": result},
	})
	if err != nil {
		return err
	}
	out, err := m.Tensor(resp.Output("values"), result)
	if err != nil {
		return err
	}
	values, err := client.Values[float32](&out)
	fmt.Fprintln(w, values)
	return err
}

func pageControl(ctx context.Context, w io.Writer, url string) error {
	c, err := client.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	config := `{"backend": "identity", "max_batch_size": 4,
		"input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
		"output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]}`
	if err := c.LoadWith(ctx, "copy", &client.LoadOptions{Config: config, Files: map[string][]byte{"1/none": nil}}); err != nil {
		return err
	}
	list, err := c.Index(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Name == "copy" {
			fmt.Fprintln(w, m.Name, m.Version, m.State)
		}
	}
	if _, err := c.SetLog(ctx, client.LogSettings{"log_verbose_level": uint32(0)}); err != nil {
		return err
	}
	if _, err := c.SetTrace(ctx, "rank", client.TraceSettings{"trace_rate": {"100"}}); err != nil {
		return err
	}
	return c.Unload(ctx, "copy", false)
}

// pages are the snippets by name.
func pages() map[string]func(ctx context.Context, w io.Writer, address string) error {
	return map[string]func(ctx context.Context, w io.Writer, address string) error{
		"pageInfer": pageInfer, "pageErrors": pageErrors, "pageOptions": pageOptions, "pageGenerate": pageGenerate, "pageSequence": pageSequence,
		"pageShared": pageShared, "pageControl": pageControl,
	}
}

// clientModels writes a repository with the models of docs/client.md.
func clientModels(t *testing.T) string {
	t.Helper()
	root := models(t, map[string]string{
		"rank": `backend: "native" max_batch_size: 8
parameters { key: "step" value { string_value: "top_k" } } parameters { key: "k" value { string_value: "2" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
		"sum": `backend: "sequence" max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
sequence_batching {
  control_input { name: "START" control { int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
}`,
		"repeat": `backend: "repeat" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: -1 } input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 } input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 } output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }`,
	})
	if err := os.WriteFile(filepath.Join(root, "rank", "labels.txt"), []byte("cat\ndog\nfox\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// clientServer runs a server for the tests of the client.
func clientServer(t *testing.T) addresses {
	t.Helper()
	return serve(t, "--model-repository="+clientModels(t), "--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true",
		"--trace-config=mode=triton", "--trace-config=triton,file="+filepath.Join(t.TempDir(), "trace.json"))
}

// snippet is a block of docs/client.md: the marker, the code, and what it prints.
var snippet = regexp.MustCompile("(?s)<!-- (page\\w+) -->\n```go\n.*?```\n(?:\n```\n.*?```\n)?")

// TestClientPage runs the snippets of docs/client.md, and compares them and what they print with the page.
func TestClientPage(t *testing.T) { //nolint:paralleltest // it sets a variable
	a := clientServer(t)
	t.Setenv("TUTTI_URL", "http://"+a.http)
	set := token.NewFileSet()
	source, err := os.ReadFile("clientpage_test.go")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			body := source[set.Position(f.Body.Lbrace).Offset+2 : set.Position(f.Body.Rbrace).Offset]
			formatted, err := format.Source(body)
			if err != nil {
				t.Fatal(err)
			}
			code[f.Name.Name] = strings.ReplaceAll(strings.TrimRight("\n"+string(formatted), "\n"), "\n\t", "\n")[1:]
		}
	}
	page, err := os.ReadFile(docsDir + "client.md")
	if err != nil {
		t.Fatal(err)
	}
	all := pages()
	text := snippet.ReplaceAllStringFunc(string(page), func(block string) string {
		name := snippet.FindStringSubmatch(block)[1]
		run := all[name]
		delete(all, name)
		if run == nil {
			t.Fatalf("docs/client.md has %s twice, or there is no such snippet", name)
		}
		address := "http://" + a.http
		if name == "pageSequence" {
			address = a.grpc
		}
		var out bytes.Buffer
		if err := run(t.Context(), &out, address); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return "<!-- " + name + " -->\n```go\n" + code[name] + "\n```\n\n```\n" + out.String() + "```\n"
	})
	for name := range all {
		t.Errorf("docs/client.md does not have %s", name)
	}
	goldentest.Check(t, docsDir+"client.md", []byte(text))
}
