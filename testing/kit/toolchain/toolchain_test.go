package toolchain

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// machine sets a PATH with only these programs.
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

// When the context ends, the command and the processes that it has started end.
func TestRunGroupInterruptsGrandchildren(t *testing.T) {
	require.System(t, "linux", "darwin")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunGroup(ctx, in, t.TempDir(), nil, "sh", "-c", "sleep 1000 & echo $!; wait") }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the command was not interrupted")
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(state, []byte(") Z ")) {
			return // it has ended, and its new parent has not yet waited for it
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlives the command that started it", pid)
		}
	}
}
