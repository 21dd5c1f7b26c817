"""The backend ``openvino``: networks compiled by OpenVINO, operators by libnystra_cpu."""
