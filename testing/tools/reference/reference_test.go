package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The pages describe the programs as they are.
func TestGeneratedPagesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{dir}); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages were written: %v", len(pages), err)
	}
	for _, page := range pages {
		want, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		committed := filepath.Join("..", "..", "..", "ui", "docs", "reference", filepath.Base(page))
		got, err := os.ReadFile(committed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("ui/docs/reference/%s is not current: run `go tool mage fmt`", filepath.Base(page))
		}
	}
}
