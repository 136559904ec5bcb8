package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/testing/require"
)

// machine gives the test a path with these programs only.
func machine(t *testing.T, programs map[string]string) {
	t.Helper()
	require.System(t, "linux", "darwin")
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("JAVA_HOME", "")
}

func TestMissingNamesTheJavaThatThisReleaseHas(t *testing.T) {
	const has21 = `[ "$2" = openjdk-21-jre-headless ]`
	for _, test := range []struct {
		what     string
		programs map[string]string
		want     []string // of maven and the Javas
	}{
		{"neither, and no apt", nil, []string{"maven", "openjdk-17-jre-headless"}},
		{"neither, in a release with Java 21", map[string]string{"apt-cache": has21}, []string{"maven", "openjdk-21-jre-headless"}},
		{"a Java that is too old", map[string]string{"apt-cache": has21, "mvn": "", "java": `echo 'openjdk version "11.0.22"' >&2`}, []string{"openjdk-21-jre-headless"}},
		{"one that is not", map[string]string{"apt-cache": has21, "mvn": "", "java": `echo 'openjdk version "17.0.15"' >&2`}, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			machine(t, test.programs)
			got := slices.DeleteFunc(Missing(), func(name string) bool {
				return name != "maven" && !slices.Contains(javaPackages, name)
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("missing: %q, want %q", got, test.want)
			}
		})
	}
}
