package prooffile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTablesAreComparedWithThoseThatWereWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := WriteOrCompare("a\nb\n"); err == nil {
		t.Error("a missing file is like any tables")
	}
	t.Setenv(Variable, filepath.Join(".", Name))
	if err := WriteOrCompare("a\nb\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.Unsetenv(Variable); err != nil {
		t.Fatal(err)
	}
	if err := WriteOrCompare("a\nb\n"); err != nil {
		t.Error(err)
	}
	err := WriteOrCompare("a\nc\n")
	if err == nil || !strings.HasSuffix(err.Error(), "\n- b\n+ c\n") {
		t.Errorf("with other tables the error is %v", err)
	}
}
