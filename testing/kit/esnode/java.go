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
	// minJava is the Java version for which Elasticsearch 8 is compiled.
	minJava = 17
	// javaTimeout bounds `java -version`, which takes 50 ms.
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
	return program, checkJava(program, string(out))
}

// checkJava checks the output of `java -version`. Before Java 9 versions began with 1.
func checkJava(program, output string) error {
	m := javaVersion.FindStringSubmatch(output)
	if m == nil {
		return fmt.Errorf("%s does not print its version: %q", program, output)
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
