"""The paper's data sets: census (synthetic), IPUMS, WISDM, Vehicle and its Gaussian ones."""
