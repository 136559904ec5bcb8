package main

import (
	_ "github.com/CycloneDX/cyclonedx-go"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	_ "github.com/muster-fleet/muster/packaging/manifest"
)

func main() {}
