package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// partsLists writes a list of parts (CycloneDX) for each program of a platform.
func (r *release) partsLists(p programs) error {
	for _, program := range []string{p.server, p.agent, p.watcher} {
		if program == "" {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(program), ".exe")
		list, err := r.parts(name, program)
		if err == nil {
			err = write(filepath.Join(r.dir, fmt.Sprintf("%s-%s-%s-%s.cdx.json", name, r.Version, p.os, p.arch)), list)
		}
		if err != nil {
			return fmt.Errorf("list of the parts of %s: %w", program, err)
		}
	}
	return nil
}

func write(file string, list *cyclonedx.BOM) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list), f.Close())
}

// parts returns the modules that are linked into a program, as the program itself says, and for
// the server the packages in its web UI. It has no serial number, which would differ each time.
func (r *release) parts(name, program string) (*cyclonedx.BOM, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	self := cyclonedx.Component{BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: r.Version}
	all := []cyclonedx.Component{library("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, library("golang", m.Path, m.Version, ""))
	}
	if name == "muster" {
		packages, err := uiPackages(filepath.Join(r.Root, "ui", "package-lock.json"))
		if err != nil {
			return nil, err
		}
		all = append(all, packages...)
	}
	refs := make([]string, 0, len(all))
	for _, c := range all {
		refs = append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.Time.Format("2006-01-02T15:04:05Z"), Component: &self}
	bom.Components = &all
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: name, Dependencies: &refs}}
	return bom, nil
}

func library(kind, name, version, license string) cyclonedx.Component {
	// "@" begins the version in a package URL, and a scope of npm begins with it.
	purl := "pkg:" + kind + "/" + strings.ReplaceAll(name, "@", "%40") + "@" + version
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
	if license != "" {
		c.Licenses = &cyclonedx.Licenses{{Expression: license}}
	}
	return c
}

// uiPackages returns the packages that the web UI may contain: those that are not only for its
// development.
func uiPackages(lockFile string) ([]cyclonedx.Component, error) {
	text, err := os.ReadFile(lockFile)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev, Peer        bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", lockFile, err)
	}
	var out []cyclonedx.Component
	for at, p := range lock.Packages {
		if at == "" || p.Dev {
			continue
		}
		name := at[strings.LastIndex(at, "node_modules/")+len("node_modules/"):]
		out = append(out, library("npm", name, p.Version, p.License))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no packages", lockFile)
	}
	slices.SortFunc(out, func(a, b cyclonedx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	// The same version can be in several places.
	return slices.CompactFunc(out, func(a, b cyclonedx.Component) bool { return a.PackageURL == b.PackageURL }), nil
}
