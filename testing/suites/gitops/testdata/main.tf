# A fleet, as people who use OpenTofu or Terraform would declare it.

terraform {
  required_providers {
    restapi = { source = "mastercard/restapi" }
  }
}

variable "server" { type = string }
variable "admin_key" {
  type      = string
  sensitive = true
}
variable "agent_version" { type = string }
variable "max_parallel" { type = number }

provider "restapi" {
  uri                  = var.server
  headers              = { Authorization = "ApiKey ${var.admin_key}", "kbn-xsrf" = "tofu" }
  id_attribute         = "metadata/name"
  update_method        = "PUT"
  write_returns_object = true
}

resource "restapi_object" "web" {
  path = "/api/v1/fleets"
  data = jsonencode({
    apiVersion = "muster.dev/v1alpha2"
    kind       = "Fleet"
    metadata = {
      name   = "web"
      labels = { team = "web" }
    }
    spec = {
      selector = { all = true }
      agent    = { version = var.agent_version }
      strategy = { kind = "rolling", batch_percent = 50 }
      limits   = { max_parallel = var.max_parallel }
      health   = { wait = "1s" }
    }
  })
}

# Only of what never changes: after an update, this version of the provider gives outputs the answer
# of before, so that any other one would differ in the next plan.
output "uid" {
  value = jsondecode(restapi_object.web.api_response).metadata.uid
}
