package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
)

// starterModels has models with the inputs and outputs that common exporters write; make.py in it makes them.
const starterModels = "../../internal/starter/testdata"

// smallTokenizer is a tokenizer whose ids all of those models can read.
const smallTokenizer = examplesDir + "/sentiment/sentiment_tokenizer/1/tokenizer.json"

// runCommand runs a command of the program and returns what it prints.
func runCommand(t *testing.T, args ...string) (out string, ok bool) {
	t.Helper()
	var b bytes.Buffer
	code := cli.Main(t.Context(), append([]string{"tutti"}, args...), &b, &b, components())
	return b.String(), code == 0
}

// initModel runs init --model in a new folder and returns the folder and what the command prints. The test fails unless validate finds
// neither an error nor a warning, and --strict only what Triton does not have by design.
func initModel(t *testing.T, args ...string) (dir, out string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "written")
	config := "--backend-config=onnxruntime,library-path=" + requireRuntime(t)
	out, ok := runCommand(t, append([]string{"init", dir, config}, args...)...)
	if !ok {
		t.Fatalf("init %v: %s", args, out)
	}
	text, ok := runCommand(t, "validate", "--format=json", config, dir)
	if !ok || !strings.Contains(text, `"severity"`) { // the notices are there
		t.Fatalf("validate: %s", text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"severity"`) && !strings.Contains(line, `"notice"`) {
			t.Errorf("validate: %s", text)
		}
	}
	text, _ = runCommand(t, "validate", "--strict", config, dir)
	for line := range strings.Lines(text) {
		// An ensemble without a version folder, the backend native, and parameters of Tutti's own.
		if strings.Contains(line, "error TUT") && !strings.Contains(line, "TUT6004") && !strings.Contains(line, "TUT6005") && !strings.Contains(line, "TUT6006") {
			t.Errorf("validate --strict: %s", line)
		}
	}
	return dir, out
}

// sendSample posts the sample request of a repository and returns the response. The README has the length of the JSON if tensors
// follow it.
func sendSample(t *testing.T, url, dir string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(dir, "request.json"))
	head := ""
	if errors.Is(err, fs.ErrNotExist) {
		if body, err = os.ReadFile(filepath.Join(dir, "request.bin")); err != nil {
			t.Fatal(err)
		}
		var readme []byte
		if readme, err = os.ReadFile(filepath.Join(dir, "README.md")); err == nil {
			_, after, _ := strings.Cut(string(readme), "Inference-Header-Content-Length: ")
			head, _, _ = strings.Cut(after, "'")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if head != "" {
		req.Header.Set("Inference-Header-Content-Length", head)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestInitModel writes a repository around each model, then serves all of them and sends each its sample request as its README says.
// The server checks the golden requests.
func TestInitModel(t *testing.T) {
	t.Parallel()
	const tokens = "--tokenizer=" + smallTokenizer
	image, text := []string{"", "_decode", "_model", "_top_k"}, []string{"", "_model", "_tokenizer", "_top_k"}
	tests := []struct {
		model, kind string
		args        []string
		models      []string // without the name of the ensemble
		says        string
	}{
		{"fixed_batch", "classify", nil, image, "fixed batch of 1"},
		{"eight_rows", "classify", nil, image, "fixed batch of 8"},
		{"external_data", "classify", nil, image, "that of torchvision"},
		{"keras_nhwc", "classify", nil, image, "ends in Softmax"},
		{"bytes_nhwc", "classify", nil, image, "not normalised, because the input is UINT8"},
		{"hf_vision", "classify", nil, image, "224 x 224 is a guess"},
		{"half", "classify", nil, []string{"", "_cast", "_decode", "_model", "_top_k"}, ""},
		{"squeezenet", "classify", nil, image, ""},
		{"squeezenet_dynamic", "classify", nil, image, ""},
		{"ir3", "classify", nil, image, "gray from 0 (black)"},
		{"no_shape", "classify", nil, image, ""},
		{"mixed_batch", "classify", nil, image, ""},
		{"bert", "text", []string{tokens}, text, "cut off at 512 tokens"},
		{"bert_int32", "text", []string{tokens}, []string{"", "_ids_cast", "_mask_cast", "_model", "_tokenizer", "_top_k", "_types_cast"}, ""},
		{"bert_static", "text", []string{tokens}, []string{"", "_ids_cast", "_mask_cast", "_model", "_tokenizer", "_top_k", "_types_cast"}, ""},
		{"distilbert", "text", []string{tokens}, text, "one score, which sigmoid turns"},
		{"no_mask", "embed", []string{tokens}, []string{"", "_model", "_pooling", "_tokenizer"}, "averaged (mode mean)"},
		{"half_embedding", "embed", []string{tokens}, []string{"", "_model", "_pooling", "_tokenizer"}, ""},
		{"sentence", "embed", []string{tokens}, []string{"", "_model", "_normalize", "_tokenizer"}, ""},
		{"token_classes", "custom", nil, []string{"", "_model"}, "expected a tokenizer"},
		{"ultralytics", "detect", nil, []string{"", "_boxes", "_decode", "_model"}, "labels are those of the metadata"},
		{"yolov5", "detect", nil, []string{"", "_boxes", "_cast", "_decode", "_model"}, "format yolov5"},
		{"end_to_end", "custom", nil, []string{"", "_model"}, "suppresses overlapping ones itself"},
		{"segment", "custom", nil, []string{"", "_model"}, "exported for the task 'segment'"},
		{"detr", "detect", nil, []string{"", "_boxes", "_decode", "_model"}, "format detr"},
		{"ssd", "detect", nil, []string{"", "_boxes", "_decode", "_model"}, "format boxes"},
		{"tabular", "custom", nil, []string{"", "_model"}, ""},
		{"integers", "custom", nil, []string{"", "_model"}, ""},
		{"strings", "custom", nil, []string{"", "_model"}, ""},
		{"scalar", "custom", nil, []string{"", "_model"}, ""},
		{"inferred", "custom", nil, []string{"", "_model"}, ""},
	}
	args := []string{"--backend-config=onnxruntime,library-path=" + requireRuntime(t)}
	dirs := map[string]string{}
	for _, tt := range tests {
		dir, out := initModel(t, append([]string{"--model=" + starterModels + "/" + tt.model + ".onnx"}, tt.args...)...)
		if !strings.Contains(out, "the ensemble '"+tt.model+"', kind "+tt.kind) || !strings.Contains(out, tt.says) || !strings.Contains(out, "response to the sample request") {
			t.Errorf("%s: expected kind %s and %q: %s", tt.model, tt.kind, tt.says, out)
		}
		var want []string
		for _, name := range tt.models {
			want = append(want, tt.model+name)
		}
		if got := folders(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: folders %v, want %v", tt.model, got, want)
		}
		dirs[tt.model] = dir
		args = append(args, "--model-repository="+dir)
	}
	a, log := serveLogged(t, components(), args...)
	for _, tt := range tests {
		if !strings.Contains(log.String(), `"golden requests answered" model=`+tt.model+" ") {
			t.Errorf("the golden request of %s was not sent", tt.model)
		}
		if text := sendSample(t, "http://"+a.http+"/v2/models/"+tt.model+"/infer", dirs[tt.model]); !strings.Contains(text, `"model_name":"`+tt.model+`"`) {
			t.Errorf("%s: the response to the sample request is %s", tt.model, text)
		}
		// As the README says, with tutti infer.
		sample := "--data=" + dirs[tt.model] + "/request.json"
		if _, err := os.Stat(strings.TrimPrefix(sample, "--data=")); err != nil {
			sample = "--data=" + dirs[tt.model] + "/request.bin"
		}
		if out, ok := runCommand(t, "infer", "--url", a.http, tt.model, sample); !ok || !strings.Contains(out, `"model_name":"`+tt.model+`"`) {
			t.Errorf("%s: infer %s: %s", tt.model, sample, out)
		}
	}
	for _, model := range []string{"half", "bert", "tabular"} { // samples of bytes in a file, of text and of numbers
		benchAsReadme(t, a, model, dirs[model])
	}
}

// benchAsReadme runs the command of a written README that measures the ensemble.
func benchAsReadme(t *testing.T, a addresses, model, dir string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^tutti (bench ` + model + ` --input )(\S+)$`).FindSubmatch(readme)
	if found == nil || !strings.Contains(string(readme), "\ntutti tune . "+model+" --slo-ms 50\n") {
		t.Fatalf("%s: expected the commands bench and tune: %s", model, readme)
	}
	args := append(strings.Fields(string(found[1])), filepath.Join(dir, string(found[2])), "--url", a.http, "--warmup=0s", "--duration=1ms", "--concurrency=1", "-o", "json")
	if out, ok := runCommand(t, args...); !ok || !strings.Contains(out, `"throughput"`) {
		t.Errorf("%s: %v: %s", model, args, out)
	}
}

// TestInitForest writes a repository around a forest of each format and sends its sample request.
func TestInitForest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, format, stored string }{
		{"xgb_binary_logistic.ubj", "xgboost_ubj", "xgboost.ubj"},
		{"xgb_multi_softprob.json", "xgboost_json", "xgboost.json"},
		{"xgb_v2_regression.model", "xgboost", "xgboost.model"},
		{"lgb_multiclass.txt", "lightgbm", "model.txt"},
		{"skl_forest_classes.tl", "treelite_checkpoint", "checkpoint.tl"},
	} {
		dir, out := initModel(t, "--name=forest", "--model=../../backends/fil/testdata/"+tt.file)
		if !strings.Contains(out, "the ensemble 'forest', kind custom") || !strings.Contains(out, "response to the sample request") {
			t.Errorf("%s: %s", tt.file, out)
		}
		text, err := os.ReadFile(filepath.Join(dir, "forest_model", "config.pbtxt"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `parameters { key: "model_type" value { string_value: "`+tt.format+`" } }`) || !strings.Contains(string(text), `backend: "fil"`) {
			t.Errorf("%s: the configuration is %s", tt.file, text)
		}
		if _, err := os.Stat(filepath.Join(dir, "forest_model", "1", tt.stored)); err != nil {
			t.Error(err)
		}
	}
}

// TestInitExamples writes repositories around the models of examples, and compares the responses of the guessed steps with those that
// are expected of the examples.
func TestInitExamples(t *testing.T) {
	t.Parallel()
	digits, sentiment := examplesDir+"/digits", examplesDir+"/sentiment"
	one, _ := initModel(t, "--model="+digits+"/digits_cnn/1/model.onnx", "--labels="+digits+"/digits_top_k/1/labels.txt", "--name=digits")
	two, _ := initModel(t, "--model="+sentiment+"/sentiment_model/1/model.onnx", "--tokenizer="+sentiment+"/sentiment_tokenizer/1",
		"--labels="+sentiment+"/sentiment_top_k/1/labels.txt", "--name=sentiment", "--kind=text")
	entities := examplesDir + "/entities"
	three, _ := initModel(t, "--model="+entities+"/entities_model/1/model.onnx", "--tokenizer="+entities+"/entities_tokenizer/1/tokenizer.json",
		"--labels="+entities+"/entities_spans/1/labels.txt", "--name=entities")
	cloned := filepath.Join(t.TempDir(), "cloned")
	for _, cmd := range [][]string{
		{"init", "-q", one}, {"-C", one, "add", "-A"}, {"-C", one, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "models"}, {"clone", "-q", one, cloned},
	} {
		if out, err := exec.Command("git", cmd...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", cmd, err, out)
		}
	}
	args := []string{"--model-repository=" + cloned, "--model-repository=" + two, "--model-repository=" + three, "--backend-config=onnxruntime,library-path=" + requireRuntime(t)}
	var examples []cli.Example
	for _, dir := range []string{digits, sentiment, entities} {
		list, err := cli.ReadExamples(dir)
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, slices.DeleteFunc(list, func(e cli.Example) bool { return e.Request.Model != filepath.Base(dir) })...)
	}
	if _, err := os.Stat(weightsFile); err == nil {
		dir, _ := initModel(t, "--model="+weightsFile, "--tokenizer="+examplesDir+"/text/tokenizer/1/tokenizer.json", "--name=ensemble")
		args = append(args, "--model-repository="+dir)
		list, err := cli.ReadExamples(examplesDir + "/text")
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, slices.DeleteFunc(list, func(e cli.Example) bool { return e.Request.Model != "ensemble" })...)
	}
	a := serve(t, args...)
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	for i := range examples {
		e := &examples[i]
		resp, err := c.Infer(t.Context(), &e.Request)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Model == "ensemble" {
			e.Outputs = e.Outputs[:1] // the guessed steps count no tokens
		}
		if resp.Model == "ensemble" || resp.Model == "entities" {
			if err := e.Check(resp); err != nil {
				t.Error(err)
			}
			continue
		}
		var want, got client.Tensor // the example returns fewer classes
		for j := range e.Outputs {
			if e.Outputs[j].Name == "labels" {
				want = e.Outputs[j]
			}
		}
		if out := resp.Output("labels"); out != nil {
			got = *out
		}
		w, _ := want.Strings()
		g, _ := got.Strings()
		width := int(got.Shape[1])
		for row := range w {
			if n := int(want.Shape[1]); row%n == 0 && g[row/n*width] != w[row] {
				t.Errorf("%s: the likeliest label of row %d is %s, want %s", e.Name, row/n, g[row/n*width], w[row])
			}
		}
	}
}

// TestInitBesideModel checks that the files of an export of Hugging Face decide labels, preprocessing, tokenizer and pooling.
func TestInitBesideModel(t *testing.T) {
	t.Parallel()
	copied := func(t *testing.T, model string, files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		data, err := os.ReadFile(filepath.Join(starterModels, model))
		if err != nil {
			t.Fatal(err)
		}
		files["onnx/model.onnx"] = string(data)
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, "onnx/model.onnx")
	}
	labels := map[string]string{}
	for i, name := range strings.Fields("zero one two three four five six seven eight nine") {
		labels[string(rune('0'+i))] = name
	}
	text, err := json.Marshal(map[string]any{"id2label": labels})
	if err != nil {
		t.Fatal(err)
	}
	dir, out := initModel(t, "--name=vision", "--model="+copied(t, "hf_vision.onnx", map[string]string{
		"config.json": string(text), "preprocessor_config.json": `{"do_center_crop": true, "crop_size": {"height": 96, "width": 96}, "size": {"shortest_edge": 128},
			"do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.25], "rescale_factor": 0.00392156862745098, "resample": 3}`,
	}))
	if !strings.Contains(out, "kind classify") || !strings.Contains(out, "preprocessor_config.json") || !strings.Contains(out, "config.json; --labels") {
		t.Error(out)
	}
	config, err := os.ReadFile(filepath.Join(dir, "vision_decode", "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"width": "96", "height": "96", "fit": "short_side", "short_side": "128", "resize": "bicubic", "mean": "0.5,0.5,0.5", "std": "0.5,0.5,0.25",
	} {
		if want := `parameters { key: "` + key + `" value { string_value: "` + value + `" } }`; !strings.Contains(string(config), want) {
			t.Errorf("expected %s: %s", want, config)
		}
	}
	tokenizer, err := os.ReadFile(smallTokenizer)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ = initModel(t, "--model="+copied(t, "half_embedding.onnx", map[string]string{
		"tokenizer.json": string(tokenizer), "sentence_bert_config.json": `{"max_seq_length": 77}`, "1_Pooling/config.json": `{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}`,
	}))
	for file, want := range map[string]string{"written_pooling": `"cls"`, "written_tokenizer": `"77"`} {
		config, err := os.ReadFile(filepath.Join(dir, file, "config.pbtxt"))
		if err != nil || !strings.Contains(string(config), want) {
			t.Errorf("%s: expected %s: %s, %v", file, want, config, err)
		}
	}
}

// TestInitRefuses checks the errors of init --model, and that they leave nothing behind.
func TestInitRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := starterModels + "/fixed_batch.onnx"
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	far, err := os.ReadFile(starterModels + "/external_data.onnx")
	if err != nil {
		t.Fatal(err)
	}
	ten := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"no such file", "there is no model '", []string{"--model=" + dir + "/none.onnx"}},
		{"no model", "expected --model with the flags", []string{"--kind=text"}},
		{"empty file", "is empty, expected an ONNX model", []string{"--model=" + file("empty.onnx", "")}},
		{"text", "it is no ONNX model", []string{"--model=" + file("text.onnx", strings.Repeat("This is no model.\n", 9))}},
		{"truncated", "the file is truncated", []string{"--model=" + file("cut.onnx", string(whole[:len(whole)/2]))}},
		{"Git LFS", "run git lfs pull", []string{"--model=" + file("lfs.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")}},
		{"external data is missing", "external_data.onnx_data: no such file", []string{"--model=" + file("far/model.onnx", string(far))}},
		{"a sequence", "its output 'Q' is a sequence, expected a tensor", []string{"--model=" + starterModels + "/sequence.onnx"}},
		{"weights", "weights without a graph: export the model to ONNX", []string{"--model=" + file("model.safetensors", "x")}},
		{"unknown format", "of no known format; expected an ONNX file", []string{"--model=" + file("model.foo", "x")}},
		{"text that is no forest", "with this extension a file of LightGBM is expected", []string{"--model=" + file("words.txt", "some words\n")}},
		{"JSON that is no forest", "with this extension a file of XGBoost's JSON is expected", []string{"--model=" + file("other.json", "{}")}},
		{"damaged forest", "cannot be read", []string{"--model=" + file("damaged.ubj", "{")}},
		{"no file", "it is neither a file nor a folder", []string{"--model=" + os.DevNull}},
		{"a folder", "has no saved_model.pb", []string{"--model=" + dir}},
		{"pickle of PyTorch", "is not an archive of TorchScript", []string{"--model=" + file("weights.pt", "x")}},
		{"weights of PyTorch", "is a file of torch.save, with weights or a pickled object and without a graph", []string{"--model=" + file("best.pt", zipOf(t, "best/data.pkl", "best/data/0"))}},
		{"archive of something else", "is a ZIP archive without TorchScript", []string{"--model=" + file("zip.jit", zipOf(t, "a/b"))}},
		{"TorchScript by another name", "has no names, types and shapes of inputs and outputs. Write the repository by hand: NAME/1/model.pt", []string{"--model=" + file("vad.jit", zipOf(t, "vad/data.pkl", "vad/code/m.py", "vad/constants.pkl"))}},
		{"OpenVINO without weights", "the weights of '", []string{"--model=" + file("net.xml", "<net/>")}},
		{"unknown kind", "unknown --kind 'poem', expected one of classify, detect", []string{"--model=" + good, "--kind=poem"}},
		{"image as text", "is no model of kind 'text': expected an input input_ids", []string{"--model=" + good, "--kind=text"}},
		{"table as image", "expected an input for images", []string{"--model=" + starterModels + "/tabular.onnx", "--kind=classify"}},
		{"text without a tokenizer", "expected a tokenizer: --tokenizer tokenizer.json", []string{"--model=" + starterModels + "/bert.onnx", "--kind=text"}},
		{"classifier as detector", "expected outputs of YOLO", []string{"--model=" + good, "--kind=detect"}},
		{"few labels", "found 2 labels, expected 10, one for each class of output 'output'", []string{"--model=" + good, "--labels=" + file("two.txt", "a\nb\n")}},
		{"empty label", "label 2 is \"\", expected one line", []string{"--model=" + good, "--labels=" + file("gap.txt", "a\n\n"+ten)}},
		{"labels are no text", "is not text in UTF-8, expected one label per line", []string{"--model=" + good, "--labels=" + file("bin.txt", "\xff\xfe\x00")}},
		{"labels in Latin-1", `line 2, "na\xefve", is not text in UTF-8`, []string{"--model=" + good, "--labels=" + file("latin1.txt", "a\nna\xefve\n")}},
		{"labels without numbers", "expected an array of labels", []string{"--model=" + good, "--labels=" + file("bad.json", `{"a": 1}`)}},
		{"no labels", "labels: ", []string{"--model=" + good, "--labels=" + dir + "/none.txt"}},
		{"labels of an embedding", "names classes, and a model of kind 'embed' has none", []string{
			"--model=" + starterModels + "/sentence.onnx", "--tokenizer=" + smallTokenizer, "--kind=embed", "--labels=" + file("ten.txt", ten),
		}},
		{"bad tokenizer", "the tokenizer '" + dir + "/tokenizer.json' cannot be read", []string{"--model=" + starterModels + "/bert.onnx", "--tokenizer=" + file("tokenizer.json", "{}")}},
		{"tokenizer of an image", "is for texts, and this model of kind 'classify' reads none", []string{"--model=" + good, "--tokenizer=" + smallTokenizer}},
		{"bad name", "'a b' is no name of a model", []string{"--model=" + good, "--name=a b"}},
		{"two forms", "expected --model or 'text', not both", []string{"text", "--model=" + good}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "new", "folder")
			out, ok := runCommand(t, append([]string{"init", to}, tt.args...)...)
			if ok || !strings.Contains(out, tt.want) || !strings.HasPrefix(out, "error: ") {
				t.Errorf("expected %q: %s", tt.want, out)
			}
			if _, err := os.Stat(filepath.Dir(to)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something is left: %v", err)
			}
		})
	}
}

// TestInitKeepsFiles checks that init writes into no folder with files, and leaves one that it cannot write as it was.
func TestInitKeepsFiles(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), "--model="+starterModels+"/fixed_batch.onnx"
	own := filepath.Join(dir, "own")
	if err := os.WriteFile(own, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{dir, own, filepath.Join(own, "below")} {
		out, ok := runCommand(t, "init", to, model)
		if ok || !strings.HasPrefix(out, "error: ") {
			t.Errorf("init %s: %s", to, out)
		}
	}
	// Without the runtime the repository is written, and there is no golden request.
	to := filepath.Join(t.TempDir(), "to")
	out, ok := runCommand(t, "init", to, model, "--backend-config=onnxruntime,library-path="+dir+"/none.so")
	if !ok || !strings.Contains(out, "There is no golden request: ") {
		t.Errorf("init without a runtime: %s", out)
	}
	if _, err := os.Stat(filepath.Join(to, "fixed_batch", "golden")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("golden: %v", err)
	}
	if data, err := os.ReadFile(own); err != nil || string(data) != "mine" || len(folders(t, dir)) > 0 {
		t.Errorf("the folder has changed: %s, %v, %v", data, err, folders(t, dir))
	}
}
