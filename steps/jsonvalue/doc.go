// Package jsonvalue holds the steps "json_extract", which takes values out of JSON
// texts as typed tensors, and "json_build", which makes an object of tensors.
package jsonvalue
