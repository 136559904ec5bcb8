// Package chart packages the Helm chart of the server. The release program calls it, and Helm reads
// what it writes.
package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

// Options say what is in a packaged chart. All fields are required.
type Options struct {
	Dir     string // the chart's folder
	Version string // of the chart, and of the server that it installs
	Time    time.Time
}

// Write writes the chart as a file for `helm install`, NAME-chart-VERSION.tgz in the folder to, and returns
// its path. The same options give the same bytes, which Helm's own function does not.
func Write(to string, o Options) (string, error) {
	c, err := loader.LoadDir(o.Dir)
	if err != nil {
		return "", fmt.Errorf("chart: %w", err)
	}
	c.Metadata.Version, c.Metadata.AppVersion = o.Version, o.Version
	if err := c.Validate(); err != nil {
		return "", fmt.Errorf("chart: %w", err)
	}
	data, err := archive(c, o.Time.UTC().Truncate(time.Second))
	if err != nil {
		return "", fmt.Errorf("chart: %w", err)
	}
	file := filepath.Join(to, fmt.Sprintf("%s-chart-%s.tgz", c.Name(), o.Version))
	return file, os.WriteFile(file, data, 0o644) //nolint:gosec // it is published
}

func archive(c *helm.Chart, at time.Time) ([]byte, error) {
	metadata, err := yaml.Marshal(c.Metadata)
	if err != nil {
		return nil, err
	}
	files := slices.SortedFunc(slices.Values(c.Raw), func(a, b *helm.File) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, f := range files {
		if f.Name == chartutil.ChartfileName {
			f = &helm.File{Name: f.Name, Data: metadata}
		}
		if err := w.WriteHeader(&tar.Header{Name: path.Join(c.Name(), f.Name), Mode: 0o644, Size: int64(len(f.Data)), ModTime: at, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
