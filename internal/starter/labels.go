package starter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// findLabels reads the labels of the option, or those that the model's metadata or a file beside it has.
func (b *builder) findLabels() (err error) {
	h := &b.hints
	if b.o.Labels != "" {
		h.labelsFrom = b.o.Labels
		h.labels, err = readLabels(b.o.Labels)
		return err
	}
	if list := ultralyticsNames(b.m.Meta["names"]); len(list) > 0 {
		h.labels, h.labelsFrom = list, "the metadata of the model"
		return nil
	}
	if list := byNumber(h.config.Labels); len(list) > 0 {
		h.labels, h.labelsFrom = list, b.near("config.json")
		return nil
	}
	for _, name := range []string{"labels.txt", "classes.txt", "synset.txt", "imagenet_classes.txt"} {
		if path := b.near(name); path != "" {
			h.labelsFrom = path
			h.labels, err = readLabels(path)
			return err
		}
	}
	return nil
}

// byNumber returns the values of a map from "0", "1" and so on, or nil if a number is missing.
func byNumber(m map[string]string) []string {
	list := make([]string, len(m))
	for i := range list {
		label, ok := m[strconv.Itoa(i)]
		if !ok {
			return nil
		}
		list[i] = label
	}
	return list
}

// ultralyticsName is an entry of the metadata "names" of Ultralytics, a dict of Python: {0: 'person', 1: "bear's"}.
var ultralyticsName = regexp.MustCompile(`(\d+): (?:'([^']*)'|"([^"]*)")`)

func ultralyticsNames(text string) []string {
	m := map[string]string{}
	for _, entry := range ultralyticsName.FindAllStringSubmatch(text, -1) {
		m[entry[1]] = entry[2] + entry[3]
	}
	return byNumber(m)
}

// readLabels reads a file with a label per line, with JSON (an array, a map from the class's number to its label, or a config.json), or
// with the YAML of a data set of Ultralytics.
func readLabels(path string) ([]string, error) {
	data, err := readHint(path)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	if data, err = labelText(data); err != nil {
		return nil, fmt.Errorf("labels '%s': %w", path, err)
	}
	var list []string
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		list, err = jsonLabels(data)
	case ".yaml", ".yml":
		list, err = yamlLabels(data)
	default:
		if text := strings.TrimRight(string(data), "\n \t"); text != "" {
			list = strings.Split(text, "\n")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("labels '%s': %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("labels '%s' are empty, expected one label per line", path)
	}
	for i, label := range list {
		if list[i] = strings.TrimSpace(label); list[i] == "" || strings.ContainsAny(list[i], "\n\r") {
			return nil, fmt.Errorf("labels '%s': label %d is %q, expected one line that is not empty", path, i+1, label)
		}
	}
	return list, nil
}

func jsonLabels(data []byte) ([]string, error) {
	var list []string
	if json.Unmarshal(data, &list) == nil {
		return list, nil
	}
	var c modelConfig
	if json.Unmarshal(data, &c) == nil && len(c.Labels) > 0 {
		list = byNumber(c.Labels)
	}
	var m map[string]string
	if list == nil && json.Unmarshal(data, &m) == nil {
		list = byNumber(m)
	}
	var pairs map[string][]string // of Keras: {"0": ["n01440764", "tench"]}
	if list == nil && json.Unmarshal(data, &pairs) == nil {
		m = map[string]string{}
		for number, names := range pairs {
			if len(names) > 0 {
				m[number] = names[len(names)-1]
			}
		}
		list = byNumber(m)
	}
	if list == nil {
		return nil, errors.New("expected an array of labels, or a map from the numbers of all classes to labels")
	}
	return list, nil
}

// labelText returns the text of a labels file in UTF-8 with lines that end in \n. A byte order mark says that it is UTF-8 or UTF-16, which
// editors and shells of Windows write.
func labelText(data []byte) ([]byte, error) {
	const bom = "\xef\xbb\xbf"
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	}
	if order != nil && len(data)%2 == 0 {
		units := make([]uint16, 0, len(data)/2)
		for i := 2; i < len(data); i += 2 {
			units = append(units, order.Uint16(data[i:]))
		}
		data = []byte(string(utf16.Decode(units)))
	}
	data = bytes.TrimPrefix(data, []byte(bom))
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			return nil, fmt.Errorf("line %d, %.40q, is not text in UTF-8, expected one label per line: if the file is in another encoding, convert it "+
				"(iconv -f latin1 -t utf-8)", i+1, line)
		}
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n")), nil
}

// yamlLabels reads the names of a data.yaml of Ultralytics: a list, or a map from the class's number.
func yamlLabels(data []byte) ([]string, error) {
	var listed struct {
		Names []string `yaml:"names"`
	}
	var mapped struct {
		Names map[string]string `yaml:"names"`
	}
	if yaml.Unmarshal(data, &listed) == nil && len(listed.Names) > 0 {
		return listed.Names, nil
	}
	if yaml.Unmarshal(data, &mapped) == nil && len(mapped.Names) > 0 {
		if list := byNumber(mapped.Names); list != nil {
			return list, nil
		}
	}
	return nil, errors.New("expected names: with a list of labels, or with a map from the numbers of all classes to labels")
}
