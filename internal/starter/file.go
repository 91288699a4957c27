package starter

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/internal/files"
)

// The formats of model files.
const (
	formatONNX       = "ONNX"
	formatOpenVINO   = "OpenVINO"
	formatSavedModel = "TensorFlow SavedModel"
	formatGraph      = "TensorFlow GraphDef"
	formatTorch      = "TorchScript"
	formatExported   = "torch.export"
	formatTensorRT   = "TensorRT"
	formatPython     = "model.py"
	formatXGBoost    = "XGBoost's binary format"
	formatXGBoostJ   = "XGBoost's JSON"
	formatXGBoostU   = "XGBoost's UBJSON"
	formatLightGBM   = "LightGBM"
	formatTreelite   = "checkpoint of treelite"
)

// forestOf has the parameter model_type of the backend fil of each format of forests.
var forestOf = map[string]string{
	formatXGBoost: "xgboost", formatXGBoostJ: "xgboost_json", formatXGBoostU: "xgboost_ubj", formatLightGBM: "lightgbm", formatTreelite: "treelite_checkpoint",
}

// backendOf has the backend of each format.
var backendOf = map[string]string{
	formatONNX: "onnxruntime", formatOpenVINO: "openvino", formatSavedModel: "tensorflow", formatGraph: "tensorflow", formatTorch: "pytorch",
	formatExported: "pytorch", formatTensorRT: "tensorrt", formatPython: "python",
	formatXGBoost: "fil", formatXGBoostJ: "fil", formatXGBoostU: "fil", formatLightGBM: "fil", formatTreelite: "fil",
}

// fileOf has the name that a backend expects in the version folder.
var fileOf = map[string]string{
	formatONNX: "model.onnx", formatOpenVINO: "model.xml", formatSavedModel: "model.savedmodel", formatGraph: "model.graphdef", formatTorch: "model.pt",
	formatExported: "model.pt2", formatTensorRT: "model.plan", formatPython: "model.py",
	formatXGBoost: "xgboost.model", formatXGBoostJ: "xgboost.json", formatXGBoostU: "xgboost.ubj", formatLightGBM: "model.txt", formatTreelite: "checkpoint.tl",
}

// advice has what to do with a file of a format that no backend reads, by its extension.
var advice = map[string]string{
	".safetensors": "weights without a graph: export the model to ONNX (optimum-cli export onnx)",
	".bin":         "weights without a graph: export the model to ONNX (optimum-cli export onnx), or give the .xml file of OpenVINO",
	".ckpt":        "a checkpoint: export the model to ONNX (torch.onnx.export)",
	".h5":          "a Keras file: export it (model.export('model.savedmodel')) and give that folder",
	".keras":       "a Keras file: export it (model.export('model.savedmodel')) and give that folder",
	".tflite":      "a TensorFlow Lite file: give the SavedModel that it was made of, or convert it to ONNX (tf2onnx)",
	".pkl":         "a pickle: convert the model to ONNX (skl2onnx), a forest to a checkpoint of treelite, or write a model.py",
	".joblib":      "a pickle: convert the model to ONNX (skl2onnx), a forest to a checkpoint of treelite, or write a model.py",
	".gguf":        "a file of llama.cpp, which no backend runs",
	".mlmodel":     "a Core ML file: export the model to ONNX",
	".mlpackage":   "a Core ML file: export the model to ONNX",
	".pdmodel":     "a PaddlePaddle file: convert it to ONNX (paddle2onnx)",
	".pb.txt":      "a graph as text: give the binary one",
}

// Open finds the format of a model file and reads its inputs and outputs, where the file has them in a form that needs no runtime.
func Open(path string) (*Model, error) {
	if path == "" {
		return nil, errors.New("expected the path of a model")
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no model '%s'", path)
	}
	if err != nil {
		return nil, fmt.Errorf("the model '%s' cannot be read: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the model '%s' cannot be read: %w", path, errSpecial)
	}
	m := &Model{Path: path}
	if info.IsDir() {
		m.Format, err = folderFormat(path)
	} else {
		m.Format, err = fileFormat(path)
	}
	if err != nil {
		return nil, err
	}
	m.Backend, m.File = backendOf[m.Format], fileOf[m.Format]
	switch m.Format {
	case formatONNX:
		err = readONNX(m)
	case formatOpenVINO:
		if weights := weightsOf(path); !files.IsRegular(weights) {
			err = fmt.Errorf("the weights of '%s' are missing, expected '%s' beside it", path, weights)
		}
	}
	return m, err
}

// weightsOf returns the path of the weights of an OpenVINO model.
func weightsOf(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".bin" }

func fileFormat(path string) (string, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".onnx":
		return formatONNX, nil
	case ".xml":
		return formatOpenVINO, nil
	case ".pt2":
		return formatExported, nil
	case ".pt", ".pth", ".torchscript", ".ts", ".jit", ".ptl":
		return torchFormat(path)
	case ".pb":
		if filepath.Base(path) == "saved_model.pb" {
			return "", fmt.Errorf("'%s' is the graph of a SavedModel: give its folder, '%s'", path, filepath.Dir(path))
		}
		return formatGraph, nil
	case ".graphdef":
		return formatGraph, nil
	case ".plan", ".engine", ".trt":
		return formatTensorRT, nil
	case ".py":
		return formatPython, nil
	case ".ubj":
		return formatXGBoostU, nil
	case ".model":
		return formatXGBoost, nil
	case ".tl":
		return formatTreelite, nil
	case ".json":
		return forestFormat(path, formatXGBoostJ, `"learner"`)
	case ".txt", ".lgb":
		return forestFormat(path, formatLightGBM, "tree\n", "tree\r\n")
	default:
		text := advice[ext]
		if text == "" {
			text = "of no known format"
		}
		return "", fmt.Errorf("'%s' is %s; expected an ONNX file (.onnx), OpenVINO (.xml), TorchScript (.pt), torch.export (.pt2), a TensorFlow SavedModel or "+
			"graph, a TensorRT plan (.plan), a model.py, or a forest: XGBoost (.ubj, .json), LightGBM (.txt), treelite (.tl)", path, text)
	}
}

// forestFormat returns the format of a file of text whose start has one of some words: other files have its extension too.
func forestFormat(path, format string, words ...string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	start := make([]byte, 4096)
	n, err := io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("the model '%s' cannot be read: %w", path, err)
	}
	for _, word := range words {
		if strings.Contains(string(start[:n]), word) {
			return format, nil
		}
	}
	return "", fmt.Errorf("'%s' is no model: with this extension a file of %s is expected, which has %q at its start", path, format, words[0])
}

func folderFormat(path string) (string, error) {
	for _, name := range []string{"saved_model.pb", "saved_model.pbtxt"} {
		if files.IsRegular(filepath.Join(path, name)) {
			return formatSavedModel, nil
		}
	}
	for _, name := range []string{"model.onnx", filepath.Join("onnx", "model.onnx"), "model.py", "model.xml", "model.pt"} {
		if files.IsRegular(filepath.Join(path, name)) {
			return "", fmt.Errorf("'%s' is a folder: give the model in it, '%s'", path, filepath.Join(path, name))
		}
	}
	return "", fmt.Errorf("the folder '%s' has no saved_model.pb, expected a file, or the folder of a SavedModel", path)
}

// torchFormat checks that a file of PyTorch is TorchScript: an archive with code, and not one of torch.save with weights or a pickled
// object.
func torchFormat(path string) (string, error) {
	const instead = "save the model by torch.jit.trace(model, example).save(...), or export it to ONNX (torch.onnx.export; yolo export format=onnx)"
	archive, err := zip.OpenReader(path)
	if errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("'%s' is not an archive of TorchScript: %s", path, instead)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = archive.Close() }()
	pickled := false
	for _, f := range archive.File {
		_, name, _ := strings.Cut(f.Name, "/") // the archive's own folder, which torch names after the file
		switch name {
		case "constants.pkl":
			return formatTorch, nil
		case "data.pkl":
			pickled = true
		}
	}
	if pickled {
		return "", fmt.Errorf("'%s' is a file of torch.save, with weights or a pickled object and without a graph: %s", path, instead)
	}
	return "", fmt.Errorf("'%s' is a ZIP archive without TorchScript: %s", path, instead)
}

// files returns the files of the version folder.
func (m *Model) files() []File {
	at := func(name string) string { return filepath.Join("1", name) }
	list := []File{{Path: at(m.File), From: m.Path}}
	switch m.Format {
	case formatOpenVINO:
		list = append(list, File{Path: at("model.bin"), From: weightsOf(m.Path)})
	default:
		for _, name := range m.External {
			list = append(list, File{Path: at(name), From: filepath.Join(filepath.Dir(m.Path), name)})
		}
	}
	return list
}

// Link makes the folder of a model without a complete configuration, whose files are links.
func (m *Model) Link(dir string) error {
	for _, f := range m.files() {
		from, err := filepath.Abs(f.From)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(to), folderMode); err != nil {
			return err
		}
		if err := os.Symlink(from, to); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("backend: %s\n%s", quoted(m.Backend), m.platform())
	return os.WriteFile(filepath.Join(dir, configFile), []byte(text), fileMode) //nolint:gosec // a repository is for everybody
}

// Undeclared says what to write for a model whose inputs and outputs cannot be read.
func (m *Model) Undeclared() string {
	switch m.Format {
	case formatTorch:
		return fmt.Sprintf("Write the repository by hand: NAME/1/%s, a copy of the file, and NAME/config.pbtxt with the types and shapes of the model's own (dims are without the batch):\n"+
			"  backend: \"%s\"\n  max_batch_size: 8\n  input { name: \"INPUT__0\" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }\n"+
			"  output { name: \"OUTPUT__0\" data_type: TYPE_FP32 dims: [ 1000 ] }\nor export the model to ONNX, which has them", m.File, m.Backend)
	case formatPython:
		return "Add auto_complete_config to the class, which declares them (tutti init DIR python writes an example), or write NAME/1/model.py and " +
			"NAME/config.pbtxt with backend: \"python\", max_batch_size, and input and output with name, data_type and dims (docs/config.md)"
	}
	return fmt.Sprintf("Write the repository by hand: NAME/1/%s, and NAME/config.pbtxt with backend: \"%s\", max_batch_size, and input and output with name, data_type "+
		"and dims (docs/config.md), or export the model to ONNX", m.File, m.Backend)
}

// platform returns the further fields that say the format.
func (m *Model) platform() string {
	switch m.Format {
	case formatSavedModel:
		return "platform: \"tensorflow_savedmodel\"\n"
	case formatGraph:
		return "platform: \"tensorflow_graphdef\"\n"
	case formatExported:
		return fmt.Sprintf("default_model_filename: %s\n", quoted(m.File))
	}
	if kind := forestOf[m.Format]; kind != "" {
		return parameters([][2]string{{"model_type", kind}})
	}
	return ""
}
