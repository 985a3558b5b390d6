# A container that serves the model mounted at /model:
#   docker build -f scripts/serve.Dockerfile -t asr-serve .
#   docker run --stop-timeout 40 -p 8000:8000 -e ASR_TOKEN=secret -v $PWD/exp/mini/model:/model:ro asr-serve
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE /src/
COPY asr /src/asr
# on a machine without a GPU, PyTorch's smaller build for CPUs: --build-arg INDEX="--extra-index-url ..."
ARG INDEX=""
RUN pip install --no-cache-dir $INDEX "/src[serve]" && rm -rf /src
RUN useradd --system asr
USER asr
EXPOSE 8000
ENTRYPOINT ["asr-serve", "--host", "0.0.0.0", "--model", "/model"]
