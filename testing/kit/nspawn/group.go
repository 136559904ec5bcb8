//go:build linux

package nspawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// makeGroups creates a control group for one machine in each hierarchy that systemd uses.
// Otherwise two machines would use the same group as their root, and see each other's
// services in it.
func makeGroups() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	parents := hierarchies(string(mounts), string(own))
	if len(parents) == 0 {
		return nil, errors.New("no control groups are mounted in which systemd could run")
	}
	// The container expects the same name in each hierarchy.
	first, err := os.MkdirTemp(parents[0], "muster-")
	if err != nil {
		return nil, fmt.Errorf("control group for a machine: %w", err)
	}
	groups := []string{first}
	for _, p := range parents[1:] {
		g := filepath.Join(p, filepath.Base(first))
		if err := os.Mkdir(g, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("control group for a machine: %w", err), removeGroups(groups))
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// hierarchies returns the folder of this process's own group in version 2, and in the
// hierarchy of version 1 named systemd if there is one.
func hierarchies(mountinfo, own string) []string {
	paths := map[string]string{} // of the own group, by controllers
	for line := range strings.Lines(own) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			paths[f[1]] = f[2]
		}
	}
	var out []string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(kind) < 3 {
			continue
		}
		controllers := "-"
		switch {
		case kind[0] == "cgroup2":
			controllers = ""
		case kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "name=systemd"):
			controllers = "name=systemd"
		}
		if path, ok := paths[controllers]; ok {
			out = append(out, filepath.Join(at[4], path))
		}
	}
	return out
}

// removeGroups removes control groups and those below them, which a container leaves. It
// retries, since a killed process stays in its group for a moment.
func removeGroups(groups []string) error {
	var errs []error
	for _, g := range groups {
		for deadline := time.Now().Add(goneTimeout); ; time.Sleep(poll) {
			err := removeTree(g)
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// The kernel removes the files in it, which cannot be removed otherwise.
	return syscall.Rmdir(dir)
}
