package config

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// ParseJSON reads a configuration that came with a request to load its model, in the
// JSON of the configuration endpoint or of protobuf. Unknown fields are refused.
func ParseJSON(text string) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, status.Errorf(status.InvalidArg, "Invalid config override: %d bytes, expected at most %d", len(text), MaxFileSize)
	}
	cfg := new(modelconfig.ModelConfig)
	if err := protojson.Unmarshal([]byte(text), cfg); err != nil {
		return nil, status.Errorf(status.InvalidArg, "Invalid config override: %s", plainText(err))
	}
	return cfg, nil
}

// plainText returns an error of Go's protobuf without its prefix, which has a random
// kind of space after it, so that nobody depends on the text by accident.
func plainText(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "proto:"))
}
