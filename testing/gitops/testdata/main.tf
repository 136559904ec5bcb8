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

  lifecycle {
    # This version of the provider compares what is declared with what was declared before, and
    # not with what the server has. A server that added its defaults would be noticed here.
    postcondition {
      condition     = jsonencode(jsondecode(self.api_response).spec) == jsonencode(jsondecode(self.data).spec)
      error_message = "the server's spec differs from the declared one: ${self.api_response}"
    }
  }
}

# A plan reads the object again, and has a change if an output differs from what the last apply
# got.
output "generation" {
  value = jsondecode(restapi_object.web.api_response).metadata.generation
}
output "uid" {
  value = jsondecode(restapi_object.web.api_response).metadata.uid
}
