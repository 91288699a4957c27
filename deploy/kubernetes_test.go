package deploy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/cmd"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// checkers returns the folder of what scripts/prepare-kubernetes fetches.
func checkers(t *testing.T) string {
	t.Helper()
	return preparedtest.Script(t, "kubernetes", "prepare-kubernetes")
}

// run runs a program and returns what it printed to stdout.
func run(t *testing.T, input []byte, program string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Logf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, errs.Bytes())
	}
	return out, err
}

// kubeVersion is a version of Kubernetes that the chart is for. Helm built from its module assumes an old one.
const kubeVersion = "1.34.0"

// charts are values of the chart: each shows a way to install it.
var charts = map[string][]string{
	"bucket": {"models.address=s3://bucket/models"},
	"claim":  {"models.claim=models", "models.poll=0", "replicas=1", "service.headless=false", "serviceAccount.create=false"},
	"gpu":    {"models.claim=models", "gpus=2", "image.tag=gpu", "leaveSeconds=0"},
	"watched": {
		"models.address=gs://bucket/models", "prometheus.monitor=true", "prometheus.rules=true", "prometheus.labels.release=p", "autoscaling.enabled=true",
		"networkPolicy.enabled=true", "args[0]=--trace-config=mode=opentelemetry",
	},
	"keda": {"models.address=as://account/models", "keda.enabled=true"},
	"jobs": {"models.claim=models", "jobs.enabled=true", "jobs.temporal.address=temporal:7233", "jobs.temporal.tlsSecret=t", "jobs.temporal.apiKeySecret=k"},
}

// render returns the manifests of the chart with some values.
func render(t *testing.T, values []string) ([]byte, error) {
	t.Helper()
	args := []string{"template", "prod", "helm/tutti", "--namespace", "ml", "--kube-version", kubeVersion}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return run(t, nil, filepath.Join(checkers(t), "bin", "helm"), args...)
}

// TestChart lints the chart, renders it in each way, and checks the manifests against the schemas of their kinds.
func TestChart(t *testing.T) {
	t.Parallel()
	dir := checkers(t)
	if _, err := run(t, nil, filepath.Join(dir, "bin", "helm"), "lint", "--strict", "helm/tutti", "--kube-version", kubeVersion, "--set", "models.claim=models"); err != nil {
		t.Error(err)
	}
	schemas := writeSchemas(t)
	for name, values := range charts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			if err := conforms(t, schemas, out); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestChartMistakes renders the chart with wrong values. Each error says what to do.
func TestChartMistakes(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ values, text string }{
		{"replicas=1", "set models.address (s3://, gs://, as://) or models.claim"},
		{"models.claim=a,models.address=s3://b/c", "exclude each other"},
		{"models.address=http://b/c", "models"},
		{"models.claim=a,args[0]=serve", "args"},
		{"models.claim=a,jobs.enabled=true", "jobs.temporal.address is missing"},
		{"models.claim=a,keda.enabled=true,autoscaling.enabled=true", "exclude each other"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(checkers(t), "bin", "helm"), "template", "x", "helm/tutti", "--kube-version", kubeVersion, "--set", bad.values)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), bad.text) {
			t.Errorf("%s: %v, %s; want an error with %q", bad.values, err, out, bad.text)
		}
	}
}

// option matches an option of the server in a text.
var option = regexp.MustCompile(`--([a-z][a-z0-9-]+)`)

// TestOptions checks that the server has every option that the chart, the compose file and the runtime of KServe pass.
func TestOptions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/options.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range option.FindAllSubmatch(page, -1) {
		known[string(m[1])] = true
	}
	seen := 0
	for name, values := range charts {
		out, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range arguments(t, out) {
			if m := option.FindStringSubmatch(arg); m != nil {
				if seen++; !known[m[1]] {
					t.Errorf("the chart with the values of %s passes %s, which the server does not have", name, arg)
				}
			}
		}
	}
	if seen < len(charts) {
		t.Errorf("%d options found in %d renderings", seen, len(charts))
	}
	for _, file := range []string{"compose.yaml", "kserve/servingruntime.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range arguments(t, text) {
			if m := option.FindStringSubmatch(arg); m != nil && !known[m[1]] {
				t.Errorf("%s passes %s, which the server does not have", file, arg)
			}
		}
	}
}

// arguments returns the arguments of the containers named tutti or kserve-container in manifests or a compose file.
func arguments(t *testing.T, manifests []byte) (list []string) {
	t.Helper()
	type container struct {
		Name string
		Args []string
	}
	d := yaml.NewDecoder(bytes.NewReader(manifests))
	for {
		var m struct {
			Spec struct {
				Containers []container
				Template   struct {
					Spec struct{ Containers []container }
				}
			}
			Services map[string]struct{ Command []string }
		}
		if d.Decode(&m) != nil {
			return list
		}
		for _, c := range slices.Concat(m.Spec.Containers, m.Spec.Template.Spec.Containers) {
			if c.Name == "tutti" || c.Name == "kserve-container" {
				list = append(list, c.Args...)
			}
		}
		list = append(list, m.Services["tutti"].Command...)
	}
}

// TestContainerfile checks the container file, which scripts/test-image builds and runs.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	if out, err := run(t, nil, filepath.Join(checkers(t), "bin", "hadolint"), "--failure-threshold", "style", "container/Containerfile"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, instruction := range []string{"SHELL", "HEALTHCHECK", "ONBUILD"} {
		if regexp.MustCompile(`(?m)^` + instruction + ` `).Match(text) {
			t.Errorf("%s has no effect in images of OCI format, the default of buildah and podman", instruction)
		}
	}
}

// TestContainerPrograms checks that each program that the container file builds exists.
func TestContainerPrograms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	builds := regexp.MustCompile(`go (?:-C (\S+) )?build .*?-o /out/(\S+) (\S+)`).FindAllSubmatch(text, -1)
	if len(builds) != 2 {
		t.Fatalf("the container file builds %d programs", len(builds))
	}
	for _, b := range builds {
		list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}}", string(b[3]))
		list.Dir = filepath.Join("..", string(b[1]))
		if out, err := list.CombinedOutput(); err != nil || string(out) != "main\n" || path.Base(string(b[3])) != string(b[2]) {
			t.Errorf("%s: %v: %s", b[0], err, out)
		}
	}
}

// TestKubernetesPage runs the commands of the page.
func TestKubernetesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"helm": filepath.Join(checkers(t), "bin", "helm"), "tutti": preparedtest.Program(t, "program", "tutti")}
	commands := regexp.MustCompile(`(?m)^\$ (\S+) (.+)$`).FindAllSubmatch(page, -1)
	if len(commands) < len(charts) {
		t.Fatalf("%d commands on the page", len(commands))
	}
	for _, c := range commands {
		program := programs[string(c[1])]
		if program == "" {
			t.Fatalf("the page runs %s, which this test does not know", c[1])
		}
		run := exec.CommandContext(t.Context(), program, strings.Fields(string(c[2]))...)
		run.Dir = ".."
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c[0], err, out)
		}
	}
}

// TestKServeArguments starts a server with the arguments of the runtimes of KServe, its own of Triton and that of Tutti; only the ports and
// the folder differ.
func TestKServeArguments(t *testing.T) {
	t.Parallel()
	for _, file := range []string{filepath.Join(checkers(t), "kserve-tritonserver.yaml"), "kserve/servingruntime.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		args := slices.DeleteFunc(arguments(t, text), func(a string) bool { return a == "tritonserver" })
		want := []string{"--model-store=/mnt/models", "--grpc-port=9000", "--http-port=8080", "--allow-grpc", "--allow-http"}
		if plain := strings.Split(strings.ReplaceAll(strings.Join(args, " "), "=true", ""), " "); !slices.Equal(plain, want) {
			t.Fatalf("%s has the arguments %q, expected %q", file, args, want)
		}
		serveKServe(t, args)
	}
}

// serveKServe starts a server with the arguments of a runtime, and executes the ensemble of kserve/models.
func serveKServe(t *testing.T, args []string) {
	t.Helper()
	change := strings.NewReplacer("/mnt/models", "kserve/models", "9000", "0", "8080", "0")
	for i := range args {
		args[i] = change.Replace(args[i])
	}
	s, err := tutti.Open(t.Context(), tutti.Settings{Args: append(args, "--metrics-port=0"), Components: cmd.Builtin()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	body := `{"inputs":[{"name":"SCORES","shape":[1,4],"datatype":"FP32","data":[3,0,4,0]}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.HTTPAddress()+"/v2/models/rank/infer", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(got), `"data":[2,0,1]`) || s.GRPCAddress() == "" {
		t.Errorf("%v, %s: want the indices 2, 0 and 1", err, got)
	}
}
