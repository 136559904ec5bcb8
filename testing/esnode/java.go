package esnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"
)

const (
	// minJava is what Elasticsearch 8 is compiled for.
	minJava = 17
	// javaTimeout bounds the question for its version, answered in 50 ms.
	javaTimeout = 20 * time.Second
)

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// Java finds a Java that Elasticsearch runs on: that of JAVA_HOME, or the path's.
func Java(ctx context.Context) (string, error) {
	program := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		program = filepath.Join(home, "bin", "java")
		if runtime.GOOS == "windows" {
			program += ".exe"
		}
	}
	program, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("no Java: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, javaTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, "-version")
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s -version: %w: %s", program, err, lastLines(out, 3))
	}
	return program, judgeJava(program, string(out))
}

// judgeJava reads what Java says of itself. Before 9 its version began with 1.
func judgeJava(program, said string) error {
	m := javaVersion.FindStringSubmatch(said)
	if m == nil {
		return fmt.Errorf("%s does not say its version: %q", program, said)
	}
	major, err := strconv.Atoi(m[1])
	if err == nil && major < minJava {
		err = errors.New("it is too old")
	}
	if err != nil {
		return fmt.Errorf("%s is Java %s, and Elasticsearch needs %d or newer: %w", program, m[1], minJava, err)
	}
	return nil
}
