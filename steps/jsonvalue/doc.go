// Package jsonvalue holds two steps: "json_extract" reads values from JSON documents into typed tensors, "json_build" writes tensors
// as JSON objects.
package jsonvalue
