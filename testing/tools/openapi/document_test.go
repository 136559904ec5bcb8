package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestSpecificationIsCurrent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "server", "api", "adminapi")
	want, err := document(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("server/api/adminapi/openapi.yaml differs from the tables of package adminapi: run `go tool mage fmt` and commit")
	}
}
